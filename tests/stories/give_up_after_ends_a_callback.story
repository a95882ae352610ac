# The answer to a callback must arrive within both limits. A heartbeat extends neither.
workflow within 1h
  approve: within 20s, body ${ callback.token }, callback within 30s heartbeat every 20s, backoff from 5s, gives up after 60s
  review:  within 20s, body ${ callback.token }, callback within 30s, gives up after 60s

submit                       => Pending; due 20s
wake                         => Processing; request approve #1 by 20s with "o-1/approve/i000000000"; request
                                review #1 by 20s with "o-1/review/i000000000"
agent cuts approve #1 "too slow"
                             => approve waiting until 5s (failures 1, may have run, call may be in progress
                                until 42s, reason kept); wake scheduler in 5s
agent defers review #1 for 35s "busy"
                             => review waiting until 35s (reason kept); wake scheduler in 35s
clock +35s
wake                         => review running (may have run, call may be in progress until 42s); request
                                approve #2 by 55s with "o-1/approve/i000000000"; request review #2 by 55s with
                                "o-1/review/i000000000"
agent completes approve #2   => approve awaiting callback until 55s
agent completes review #2    => review awaiting callback until 60s
clock +10s
callback heartbeat for approve
                             => approve awaiting callback until 60s
clock +17s
sweep                        => Error; approve failed (failures 2, reason kept); review failed (failures 1,
                                reason kept); due 92s; alert approve, review "step review: no retry within
                                `give_up_after`: no reply by complete-by, attempt 2; step approve: no retry
                                within `give_u…"
