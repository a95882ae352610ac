# A reply after complete-by counts while its attempt is the newest. Before the supervisor has given
# the attempt up, any reply counts. While the next attempt is pending or runs, only a reply that it
# completed counts.
timing   clock skew 2s, pickup within 30s
workflow within 10m
  reserve: within 20s, attempts 2, backoff from 5s

submit                       => Pending; due 20s
wake                         => Processing; request reserve #1 by 20s
clock +21s
agent completes reserve #1   => Processed; reserve completed (output kept); no longer due

submit                       => Pending; due 41s
wake                         => Processing; request reserve #1 by 41s
clock +21s
agent fails reserve #1 "no stock"
                             => Error; reserve failed (failures 1, reason kept); due 72s; alert
                                reserve "step reserve: no stock"

submit                       => Pending; due 62s
wake                         => Processing; request reserve #1 by 62s
clock +22s
sweep                        => reserve waiting until 69s (failures 1, may have run, call may be in progress
                                until 84s, reason kept); unlocked; due 99s; wake scheduler in 5s
agent fails reserve #1 "no stock"
                             => ignored: StaleReply
agent completes reserve #1   => Processed; reserve completed (output kept); no longer due

submit                       => Pending; due 84s
wake                         => Processing; request reserve #1 by 84s
clock +22s
sweep                        => reserve waiting until 91s (failures 1, may have run, call may be in progress
                                until 106s, reason kept); unlocked; due 121s; wake scheduler in 5s
clock +5s
wake                         => due 111s; request reserve #2 by 111s
agent completes reserve #1   => Processed; reserve completed (call may be in progress until 133s, output kept); no longer due
agent completes reserve #2   => ignored: DuplicateReply
