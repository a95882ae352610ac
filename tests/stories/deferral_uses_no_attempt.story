# An agent does not call a service that is known to be down. It defers the step for a time. The step
# waits and uses no attempt.
workflow within 1h
  charge: within 20s, attempts 2, backoff from 1s

submit                       => Pending; due 20s
wake                         => Processing; request charge #1 by 20s
agent defers charge #1 for 10s "breaker open"
                             => charge waiting until 10s (reason kept); wake scheduler in 10s
agent defers charge #1 for 10s "breaker open"
                             => ignored: StaleReply
# The scheduler may have crashed before it sent its wake.
clock +1s
agent defers charge #1 for 10s "breaker open" (redelivered)
                             => ignored: StaleReply; again wake scheduler in 9s
wake                         => ignored: NothingReady
wake (redelivered)           => ignored: NothingReady; again wake scheduler in 9s
clock +9s
wake                         => charge running (may have run, call may be in progress until 42s); request
                                charge #2 by 30s
agent defers charge #2 for 10s "breaker open"
                             => charge waiting until 20s (reason kept); wake scheduler in 10s
clock +10s
wake                         => charge running (call may be in progress until 52s); request charge #3 by 40s
clock +22s
sweep                        => charge waiting until 43s (failures 1, call may be in progress until 62s,
                                reason kept); unlocked; due 73s; wake scheduler in 1s
clock +1s
wake                         => due 63s; request charge #4 by 63s
agent defers charge #4 for 0s "breaker open", may have run
                             => charge waiting until 43.100s (call may be in progress until 85s, reason kept);
                                wake scheduler in 0.1s
clock +1s
wake                         => request charge #5 by 64s
clock +22s
sweep                        => Error; charge failed (failures 2, call may be in progress until 86s, reason
                                kept); due 96s; alert charge "step charge: no reply by complete-by,
                                attempt 5"
