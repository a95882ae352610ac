# A reply to a superseded attempt is ignored: its attempt number fences it.
timing   clock skew 2s, pickup within 30s
workflow within 10m
  reserve: within 20s, attempts 2
  charge:  after reserve, within 20s, body ${ steps.reserve.output }

submit                       => Pending; due 20s
wake                         => Processing; request reserve #1 by 20s
clock +22s
sweep                        => reserve waiting (failures 1, may have run, call may be in progress until 42s,
                                reason kept); unlocked; due 52s; wake scheduler
wake                         => due 42s; request reserve #2 by 42s
agent completes reserve #1 with "first"
                             => ignored: StaleReply
agent fails reserve #1 "no stock"
                             => ignored: StaleReply
agent completes reserve #1 with "first" (redelivered)
                             => ignored: StaleReply
agent completes reserve #2 with "second"
                             => reserve completed (output kept); request charge #1 by 42s with
                                "second"
agent completes reserve #1 with "first" (redelivered)
                             => ignored: StaleReply
