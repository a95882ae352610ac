# The callback decides whether the task can still be undone.
workflow within 2h
  approve: callback within 1h heartbeat every 10m, body ${ callback.token }, point of no return, undo
  check:   then undo

submit                       => Pending; due 30s
wake                         => Processing; request approve #1 by 60s with "o-1/approve/i000000000";
                                request check #1 by 60s
agent completes approve #1   => approve awaiting callback until 600s
agent fails check #1 "no"    => Undoing because "step check: no"; check failed (failures 1, reason kept)
callback completes approve with 1
                             => Error; approve completed (output kept);
                                alert check "not undone, past the point of no return approve: step check: no"
submit                       => Pending; due 30s
wake                         => Processing; request approve #1 by 60s with "o-1/approve/i000000000";
                                request check #1 by 60s
agent completes approve #1   => approve awaiting callback until 600s
agent fails check #1 "no"    => Undoing because "step check: no"; check failed (failures 1, reason kept)
callback heartbeat for approve
                             => ignored: StillAwaited
clock +1m
callback heartbeat for approve
                             => approve awaiting callback until 660s
callback fails approve "never"
                             => Error; approve failed (failures 1, may have run, reason kept); due 90s;
                                alert approve, check "not undone, past the point of no return approve: step check: no"
