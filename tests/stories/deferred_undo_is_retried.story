# An undo is deferred like a step. It can always be retried.
workflow within 10m
  charge: not idempotent, undo (within 20s, attempts 1)
  ship:   after charge, then undo

submit                       => Pending; due 30s
wake                         => Processing; request charge #1 by 60s
agent completes charge #1    => charge completed (output kept); request ship #1 by 60s
agent fails ship #1 "no lorry"
                             => Undoing because "step ship: no lorry";
                                ship failed (failures 1, reason kept); due 20s;
                                request undo of charge #1 by 20s
agent defers undo of charge #1 for 10s "breaker open", may have run
                             => undo of charge waiting until 10s (may have run, call may be in progress until
                                42s, reason kept); wake scheduler in 10s
agent defers undo of charge #1 for 10s "breaker open" (redelivered)
                             => ignored: StaleReply; again wake scheduler in 10s
wake                         => ignored: NothingReady
clock +10s
wake                         => request undo of charge #2 by 30s
agent defers undo of charge #2 for 10s "breaker open"
                             => undo of charge waiting until 20s (reason kept);
                                wake scheduler in 10s
clock +42s
sweep                        => due 82s; wake scheduler
wake                         => undo of charge running (call may be in progress until 52s); due 72s; request
                                undo of charge #3 by 72s
agent completes undo of charge #3
                             => Undone; charge undone (output kept); no longer due
