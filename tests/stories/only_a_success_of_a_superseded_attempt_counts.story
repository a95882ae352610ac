# Of the replies to a superseded attempt, only a success counts: the service recognises the call of the next attempt by the
# idempotency key. The attempt number fences the others.
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
agent fails reserve #1 "no stock"
                             => ignored: StaleReply
agent completes reserve #1 with "first"
                             => reserve completed (call may be in progress until 64s, output kept); request charge #1
                                by 42s with "first"
agent fails reserve #1 "no stock"
                             => ignored: StaleReply
agent completes reserve #2 with "second"
                             => ignored: DuplicateReply
agent completes reserve #1 with "first" (redelivered)
                             => ignored: DuplicateReply; again request charge #1 by 42s with "first"
