# The request of an undo that reads its step's output cannot be created if there is no output. The
# task is in Error, and the alert names the parts that are left to undo. The operator settles them.
workflow within 10m
  reserve: undo
  charge:  after reserve, within 20s, attempts 1, then undo,
           undo (path /refunds/${ steps.charge.output.id })

submit reply_to shop         => Pending; due 20s
wake                         => Processing; request reserve #1 by 60s
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 20s
clock +22s
sweep                        => Undoing because "step charge: no reply by complete-by, attempt 1";
                                task by 642s; charge failed (failures 1, may have run, call may be in progress
                                until 42s, reason kept); unlocked; due 72s; wake scheduler in 20s
clock +20s
wake                         => Error; undo of charge failed (failures 1, reason kept);
                                notification to shop: error "undo of step charge: expression
                                `steps.charge.output.id`: there is no `charge`";
                                alert: left to undo reserve, charge "undo of step charge: expression
                                `steps.charge.output.id`: there is no `charge`"
wake (redelivered) => ignored: NothingReady; again notification to shop: error "undo of step charge: expression `steps.charge.output.id`: there is no `charge`"; again alert: left to undo reserve, charge "undo of step charge: expression `steps.charge.output.id`: there is no `charge`"
alert sent                   => no longer due
ann skips because "there is no charge"
                             => Undoing; undo of charge skipped; due 102s; request undo of reserve
                                #1 by 102s; published: skip charge
agent completes undo of reserve #1
                             => Undone; reserve undone (output kept); no longer due;
                                notification to shop: undone "step charge: no reply by complete-by,
                                attempt 1"
