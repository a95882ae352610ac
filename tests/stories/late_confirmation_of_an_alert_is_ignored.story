# A confirmation that an alert was sent is recorded only while the task is in the same Error. An
# operator may resubmit the task before the confirmation arrives.
workflow within 10m
  reserve: within 60s
  charge:  after reserve, undo (attempts 1)

submit                       => Pending; due 30s
wake                         => Processing; request reserve #1 by 60s
agent fails reserve #1 "no stock"
                             => Error; reserve failed (failures 1, reason kept);
                                alert reserve "step reserve: no stock"
ann resubmits                => Processing; reserve running (failures 0); due 60s;
                                request reserve #2 by 60s; published: resubmit reserve
alert sent                   => ignored: NotDue
agent completes reserve #2   => reserve completed (output kept); request charge #1 by 60s
agent completes charge #1    => Processed; charge completed (output kept); no longer due
alert sent                   => ignored: NotDue
ann undoes                   => Undoing because "requested by ann: a test"; due 60s; request undo of
                                charge #1 by 60s; published: undo
alert sent                   => ignored: NotDue
agent fails undo of charge #1 "gone"
                             => Error; undo of charge failed (failures 1, reason kept); due 30s;
                                alert: left to undo charge "undo of step charge: gone"
clock +32s
sweep                        => due 62s; alert: left to undo charge "undo of step charge: gone"
alert sent                   => no longer due
ann skips charge             => Undone; task by 632s; undo of charge skipped; published: skip charge
alert sent                   => ignored: NotDue

# The task fails again. The confirmation of the first alert arrives only now; the second alert has not
# been sent.
submit                       => Pending; due 62s
wake                         => Processing; request reserve #1 by 92s
agent fails reserve #1 "no stock"
                             => Error; reserve failed (failures 1, reason kept); alert reserve "step
                                reserve: no stock"
clock +1s
ann resubmits                => Processing; task by 633s; reserve running (failures 0); due 93s;
                                request reserve #2 by 93s; published: resubmit reserve
clock +1s
agent fails reserve #2 "no stock"
                             => Error; reserve failed (failures 1, reason kept); due 64s; alert
                                reserve "step reserve: no stock"
alert of 32s sent            => ignored: NotDue
clock +32s
sweep                        => due 96s; alert reserve "step reserve: no stock"
alert of 34s sent            => no longer due
