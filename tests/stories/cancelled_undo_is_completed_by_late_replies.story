# Replies that arrive after a task was cancelled are recorded, also deferrals. When the operator
# resubmits the undo, it is complete or continues.
workflow within 1h
  reserve: undo
  charge:  after reserve, then undo

submit                       => Pending; due 30s
wake                         => Processing; request reserve #1 by 60s
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 60s
agent fails charge #1 "card declined"
                             => Undoing because "step charge: card declined";
                                charge failed (failures 1, reason kept);
                                request undo of reserve #1 by 60s
ann cancels                  => Error; alert: left to undo reserve "cancelled by ann: a test";
                                published: cancel
agent defers undo of reserve #1 for 10s "breaker open"
                             => undo of reserve waiting until 10s (reason kept)
alert sent                   => no longer due
clock +1s
ann resubmits                => Undoing; task by 3601s; undo of reserve running (may have run, call
                                may be in progress until 122s); due 61s; request undo of reserve #2 by 61s;
                                published: resubmit reserve
agent completes undo of reserve #2
                             => task by 3722s; reserve undone (output kept); wake scheduler in 121s

clock +121s
wake                         => Undone; no longer due

submit                       => Pending; due 152s
wake                         => Processing; request reserve #1 by 182s
ann cancels                  => Error; alert "cancelled by ann: a test"; published: cancel
agent defers reserve #1 for 10s "breaker open"
                             => reserve waiting until 132s (reason kept)
alert sent                   => no longer due
clock +1s
ann resubmits                => Processing; task by 3723s; reserve running (may have run, call may
                                be in progress until 244s); due 183s; request reserve #2 by 183s; published:
                                resubmit reserve
agent completes reserve #2   => reserve completed (output kept); request charge #1 by 183s
ann cancels                  => Error; due 153s; alert "cancelled by ann: a test"; published: cancel
agent completes charge #1    => charge completed (output kept)
ann resubmits                => Processed; published: resubmit
