# A task whose undo is not finished in time is in Error, and the alert names the parts that are left
# to undo. A resubmit gives it the same time again.
timing   clock skew 2s, pickup within 30s
workflow within 50s
  reserve: within 30s, undo (within 30s, attempts 9)
  charge:  after reserve, within 30s, then undo

submit reply_to shop         => Pending; due 30s
wake                         => Processing; request reserve #1 by 30s
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 30s
agent fails charge #1 "card declined"
                             => Undoing because "step charge: card declined";
                                charge failed (failures 1, reason kept);
                                request undo of reserve #1 by 30s
clock +32s
sweep                        => undo of reserve waiting (failures 1, may have run, call may be in progress
                                until 62s, reason kept); unlocked; due 50s; wake scheduler
wake                         => request undo of reserve #2 by 50s
clock +20s
sweep                        => Error; undo of reserve waiting (failures 2, call may be in progress until 82s,
                                reason kept); due 82s; notification to shop: error "the task was not
                                undone by its complete-by"; alert: left to undo reserve "the task
                                was not undone by its complete-by"
alert sent                   => no longer due
clock +100s
agent fails undo of reserve #2 "gone"
                             => ignored: StaleReply
ann resubmits                => Undoing; task by 202s; undo of reserve running (failures 0);
                                due 182s; request undo of reserve #3 by 182s; published: resubmit reserve
agent completes undo of reserve #3
                             => Undone; reserve undone (output kept); no longer due;
                                notification to shop: undone "step charge: card declined"
