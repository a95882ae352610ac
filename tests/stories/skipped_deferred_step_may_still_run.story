# The request of a deferred attempt may have been delivered twice, and the other delivery may still
# run when the step is skipped. So the step is undone too, when no call of it can be in progress any
# more.
timing   clock skew 2s, pickup within 30s
workflow within 10m
  reserve: within 20s, undo (within 20s)
  charge:  after reserve, within 20s, then undo

submit                       => Pending; due 20s
wake                         => Processing; request reserve #1 by 20s
agent defers reserve #1 for 60s "breaker open"
                             => reserve waiting until 60s (reason kept); wake scheduler in 60s
ann skips reserve            => reserve skipped (may have run, call may be in progress until 42s); request
                                charge #1 by 20s; published: skip reserve
agent fails charge #1 "card declined"
                             => Undoing because "step charge: card declined"; task by 642s; charge
                                failed (failures 1, reason kept); wake scheduler in 42s
clock +42s
wake                         => request undo of reserve #1 by 62s
agent completes undo of reserve #1
                             => Undone; reserve undone (output kept); no longer due
