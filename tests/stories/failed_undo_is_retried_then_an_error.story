# An undo has a recovery policy like a step: attempts, pauses, extended waits. At the end the task is
# in Error, the alert names the parts that are left to undo, and an operator resubmits the failed
# undo.
workflow within 10h
  check:   undo
  reserve: after check, undo (within 10s, attempts 2, backoff from 1s, extended wait 5m 1 time)
  charge:  after reserve, then undo

submit reply_to shop         => Pending; due 30s
wake                         => Processing; request check #1 by 60s
agent completes check #1     => check completed (output kept); request reserve #1 by 60s
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 60s
agent fails charge #1 "card declined"
                             => Undoing because "step charge: card declined";
                                charge failed (failures 1, reason kept); due 10s;
                                request undo of reserve #1 by 10s
clock +12s
sweep                        => undo of reserve waiting until 13s (failures 1, may have run, call
                                may be in progress until 22s, reason kept); unlocked; due 43s; wake scheduler
                                in 1s
wake => ignored: NothingReady; again wake scheduler in 1s
clock +1s
wake => due 23s; request undo of reserve #2 by 23s
clock +12s
sweep => undo of reserve waiting until 325s (failures 2, call may be in progress until 35s, reason kept); unlocked; due 355s; wake scheduler in 300s
clock +300s
wake                         => due 335s; request undo of reserve #3 by 335s
clock +12s
sweep                        => undo of reserve waiting until 338s (failures 3, call may be in progress until
                                347s, reason kept); unlocked; due 368s; wake scheduler in 1s
clock +1s
wake                         => due 348s; request undo of reserve #4 by 348s
agent completes undo of reserve #1
                             => ignored: StaleReply
clock +12s
sweep                        => Error; undo of reserve failed (failures 4, call may be in progress until 360s,
                                reason kept); due 380s; notification to shop: error "undo of step reserve:
                                no reply by complete-by, attempt 4"; alert: left to undo check,
                                reserve "undo of step reserve: no reply by complete-by, attempt 4"
wake => ignored: NothingReady
agent completes undo of reserve #4
                             => ignored: DuplicateReply
alert sent                   => no longer due
clock +10s
ann resubmits because "the service is back"
                             => Undoing; task by 36360s; undo of reserve running (failures 0);
                                due 370s; request undo of reserve #5 by 370s; published: resubmit reserve
agent completes undo of reserve #4
                             => ignored: StaleReply
agent completes undo of reserve #5
                             => reserve undone (output kept); request undo of check #1 by 420s
agent completes undo of check #1
                             => Undone; check undone (output kept); no longer due;
                                notification to shop: undone "step charge: card declined"
