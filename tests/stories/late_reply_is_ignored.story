# A reply after complete-by is ignored, before and after the supervisor gave the attempt up.
timing   clock skew 2s, pickup within 30s
workflow within 10m
  reserve: within 20s, attempts 2

submit                       => Pending; due 20s
wake                         => Processing; request reserve #1 by 20s
clock +21s
agent completes reserve #1   => ignored: LateReply
agent fails reserve #1 "no stock"
                             => ignored: LateReply
clock +1s
sweep                        => reserve waiting (failures 1, may have run, reason kept); unlocked;
                                due 52s; wake scheduler
agent completes reserve #1   => ignored: StaleReply
wake                         => due 42s; request reserve #2 by 42s
# At complete-by is not after it.
clock +20s
agent completes reserve #2   => Processed; reserve completed (output kept); no longer due
