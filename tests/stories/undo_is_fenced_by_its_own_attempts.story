# A step and its undo number their attempts separately, so a late reply to one never counts for the
# other.
workflow within 10m
  reserve: within 20s, undo (within 20s)
  charge:  after reserve, then undo

submit                       => Pending; due 20s
wake                         => Processing; request reserve #1 by 20s
clock +22s
sweep                        => reserve waiting (failures 1, may have run, call may be in progress until 42s,
                                reason kept); unlocked; due 52s; wake scheduler
wake                         => due 42s; request reserve #2 by 42s
agent completes reserve #2   => reserve completed (output kept); request charge #1 by 82s
agent fails charge #1 "card declined"
                             => Undoing because "step charge: card declined"; task by 642s; charge
                                failed (failures 1, reason kept); wake scheduler in 20s
clock +20s
wake                         => request undo of reserve #1 by 62s
agent completes reserve #1   => ignored: DuplicateReply
agent completes reserve #2   => ignored: DuplicateReply
agent completes undo of reserve #2
                             => illegal: a reply to attempt 2 at the undo of step `reserve`; the
                                newest is 1
agent completes undo of charge #1
                             => illegal: a reply to the undo of step `charge`, which never started
clock +22s
sweep                        => undo of reserve waiting (failures 1, may have run, call may be in progress
                                until 84s, reason kept); unlocked; due 94s; wake scheduler
agent fails undo of reserve #1 "gone"
                             => ignored: StaleReply
agent fails undo of reserve #1 "gone" (redelivered)
                             => ignored: StaleReply; again wake scheduler
wake                         => due 84s; request undo of reserve #2 by 84s
agent completes undo of reserve #1
                             => ignored: StaleReply
agent completes undo of reserve #2
                             => task by 684s; reserve undone (output kept); wake scheduler in 20s
clock +20s
wake                         => Undone; no longer due
agent completes undo of reserve #3
                             => illegal: a reply to attempt 3 at the undo of step `reserve`; the
                                newest is 2
agent fails undo of reserve #2 "gone"
                             => ignored: DuplicateReply
# The task is Undone. Repeated messages change nothing.
agent completes reserve #2   => ignored: DuplicateReply
agent defers reserve #2 for 10s "breaker open"
                             => ignored: DuplicateReply
agent defers undo of reserve #2 for 10s "breaker open"
                             => ignored: DuplicateReply
agent defers charge #1 for 10s "breaker open"
                             => ignored: DuplicateReply
