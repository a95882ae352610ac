# After a permanent failure there is no other attempt, but Error and an alert.
workflow
  reserve: within 60s
  charge:  after reserve, within 60s, attempts 3
  ship:    after charge

submit                       => Pending; due 30s
wake                         => Processing; request reserve #1 by 60s
clock +1s
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 61s
clock +1s
agent fails charge #1 "card declined"
                             => Error; charge failed (failures 1, reason kept); due 32s;
                                alert charge "step charge: card declined"
wake => ignored: NothingReady
agent fails charge #1 "card declined"
                             => ignored: DuplicateReply
agent fails charge #1 "card declined" (redelivered)
                             => ignored: DuplicateReply; again alert charge
                                "step charge: card declined"
alert sent                   => no longer due
agent fails charge #1 "card declined" (redelivered)
                             => ignored: DuplicateReply
