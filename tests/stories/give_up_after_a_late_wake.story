# No attempt begins after the time limit, however late the scheduler is woken. The supervisor gives the step up.
workflow within 1h
  reserve: undo (gives up after 60s)
  charge:  after reserve, within 20s, backoff from 10s, gives up after 60s, then undo, undo

submit                       => Pending; due 20s
wake                         => Processing; request reserve #1 by 60s
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 20s
agent cuts charge #1 "too slow"
                             => charge waiting until 10s (failures 1, may have run, call may be in progress
                                until 42s, reason kept); wake scheduler in 10s
clock +60s
wake                         => ignored: NothingReady
sweep                        => due 90s
clock +2s
sweep                        => ignored: NotDue
clock +30s
sweep                        => Undoing because "step charge: `give_up_after` is over"; task by 3692s; charge
                                failed; due 122s; wake scheduler
wake                         => request undo of charge #1 by 152s
agent completes undo of charge #1
                             => charge undone (output kept); request undo of reserve #1 by 152s
agent defers undo of reserve #1 for 30s "breaker open"
                             => undo of reserve waiting until 122s (reason kept); wake scheduler in 30s
clock +62s
wake                         => ignored: NothingReady
sweep                        => Error; undo of reserve failed (may have run, call may be in progress until
                                214s); due 184s; alert: left to undo reserve "undo of step reserve:
                                `give_up_after` is over"
ann resubmits                => Undoing; task by 3754s; due 214s; request undo of reserve #2 by 214s; published:
                                resubmit reserve
