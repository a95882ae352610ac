# Events that cannot have happened are illegal: a corrupt or foreign message. It becomes a dead letter if
# it may report an effect.
# A confirmation of an alert counts only in Error.
workflow
  reserve: within 60s
  charge:  after reserve, within 60s

submit                       => Pending; due 30s
agent completes reserve #1   => illegal: a reply to step `reserve`, which never started
alert sent                   => ignored: NotDue
wake                         => Processing; request reserve #1 by 60s
agent completes reserve #2   => illegal: a reply to attempt 2 at step `reserve`; the newest is 1
agent completes reserve #0   => illegal: a reply to attempt 0 at step `reserve`; the newest is 1
agent completes charge #1    => illegal: a reply to step `charge`, which never started
agent completes refund #1    => illegal: a reply to step `refund`, which never started
alert sent                   => ignored: NotDue
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 60s
agent completes charge #1    => Processed; charge completed (output kept); no longer due
agent completes charge #2    => illegal: a reply to attempt 2 at step `charge`; the newest is 1
alert sent                   => ignored: NotDue
# A wake or a sweep can arrive at any time.
wake                         => ignored: Ended
sweep                        => ignored: Ended

# The same in every state, for steps and undos.
submit                       => Pending; due 30s
agent fails reserve #1 "no stock"
                             => illegal: a reply to step `reserve`, which never started
agent defers reserve #1 for 10s "breaker open"
                             => illegal: a reply to step `reserve`, which never started
agent completes undo of reserve #1
                             => illegal: a reply to the undo of step `reserve`, which never started
agent fails undo of reserve #1 "gone"
                             => illegal: a reply to the undo of step `reserve`, which never started
agent defers undo of reserve #1 for 10s "breaker open"
                             => illegal: a reply to the undo of step `reserve`, which never started
wake                         => Processing; request reserve #1 by 60s
agent completes undo of reserve #1
                             => illegal: a reply to the undo of step `reserve`, which never started
agent fails undo of reserve #1 "gone"
                             => illegal: a reply to the undo of step `reserve`, which never started
agent defers undo of reserve #1 for 10s "breaker open"
                             => illegal: a reply to the undo of step `reserve`, which never started
clock +1s
agent fails reserve #1 "no stock"
                             => Error; reserve failed (failures 1, reason kept); due 31s;
                                alert reserve "step reserve: no stock"
agent completes charge #1    => illegal: a reply to step `charge`, which never started
