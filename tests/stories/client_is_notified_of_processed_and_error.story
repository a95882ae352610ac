# The client is notified of the end of its task on the reply queue that it named. There is no other
# notification, and none without a reply queue.
timing   clock skew 2s, pickup within 30s
workflow within 10m
  reserve: within 60s
  charge:  after reserve, within 60s, attempts 1

submit reply_to shop         => Pending; due 30s
wake                         => Processing; request reserve #1 by 60s
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 60s
agent completes charge #1    => Processed; charge completed (output kept); no longer due;
                                notification to shop: processed

submit reply_to shop         => Pending; due 30s
wake                         => Processing; request reserve #1 by 60s
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 60s
clock +1s
agent fails charge #1 "card declined"
                             => Error; charge failed (failures 1, reason kept); due 31s;
                                notification to shop: error "step charge: card declined";
                                alert charge "step charge: card declined"

# The same if the supervisor ends the task.
submit reply_to shop         => Pending; due 31s
wake                         => Processing; request reserve #1 by 61s
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 61s
clock +62s
sweep                        => Error; charge failed (failures 1, may have run, call may be in progress until
                                123s, reason kept); due 93s; notification to shop: error "step charge: no
                                reply by complete-by, attempt 1"; alert charge "step charge: no
                                reply by complete-by, attempt 1"

submit                       => Pending; due 93s
wake                         => Processing; request reserve #1 by 123s
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 123s
agent completes charge #1    => Processed; charge completed (output kept); no longer due
