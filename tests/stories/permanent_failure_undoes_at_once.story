# After a permanent failure, `then` applies at once: here, undo.
workflow within 10m
  reserve: undo
  charge:  after reserve, within 60s, attempts 3, extended wait 15m 2 times, then undo

submit reply_to shop         => Pending; due 30s
wake                         => Processing; request reserve #1 by 60s
clock +1s
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 61s
clock +1s
agent fails charge #1 "card declined"
                             => Undoing because "step charge: card declined"; task by 602s;
                                charge failed (failures 1, reason kept);
                                request undo of reserve #1 by 62s
agent fails charge #1 "card declined"
                             => ignored: DuplicateReply
agent fails charge #1 "card declined" (redelivered)
                             => ignored: DuplicateReply; again request undo of reserve #1 by 62s
wake                         => ignored: NothingReady
wake (redelivered)           => ignored: NothingReady; again request undo of reserve #1 by 62s
clock +1s
agent completes undo of reserve #1
                             => Undone; reserve undone (output kept); no longer due;
                                notification to shop: undone "step charge: card declined"
agent completes undo of reserve #1
                             => ignored: DuplicateReply
agent completes undo of reserve #1 (redelivered)
                             => ignored: DuplicateReply;
                                again notification to shop: undone "step charge: card declined"
agent fails charge #1 "card declined" (redelivered)
                             => ignored: DuplicateReply;
                                again notification to shop: undone "step charge: card declined"
wake                         => ignored: Ended
wake (redelivered)           => ignored: Ended;
                                again notification to shop: undone "step charge: card declined"
sweep                        => ignored: Ended
alert sent                   => ignored: NotDue
