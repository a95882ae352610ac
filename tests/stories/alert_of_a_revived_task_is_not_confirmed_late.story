# That an alert was sent is recorded only while the task is in Error: an operator may be quicker.
workflow within 10m
  reserve: within 60s
  charge:  after reserve, undo (attempts 1)

submit                       => Pending; due 30s
wake                         => Processing; request reserve #1 by 60s
agent fails reserve #1 "no stock"
                             => Error; reserve failed (failures 1, reason kept);
                                alert reserve "step reserve: no stock"
ann resubmits                => Processing; reserve running (failures 0); due 60s;
                                request reserve #2 by 60s; told: resubmit reserve
alert sent                   => ignored: NotDue
agent completes reserve #2   => reserve completed (output kept); request charge #1 by 60s
agent completes charge #1    => Processed; charge completed (output kept); no longer due
alert sent                   => ignored: NotDue
ann undoes                   => Undoing because "asked for by ann: a test"; due 60s;
                                request undo of charge #1 by 60s; told: undo
alert sent                   => ignored: NotDue
agent fails undo of charge #1 "gone"
                             => Error; undo of charge failed (failures 1, reason kept); due 30s;
                                alert: left to undo charge "undo of step charge: gone"
clock +32s
sweep                        => due 62s; alert: left to undo charge "undo of step charge: gone"
alert sent                   => no longer due
ann skips charge             => Undone; task by 632s; undo of charge skipped; told: skip charge
alert sent                   => ignored: NotDue
