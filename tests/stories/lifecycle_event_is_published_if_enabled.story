# If the workflow enables lifecycle events, the end of each task is published as an event on the bus.
workflow within 10m, with lifecycle events
  reserve: within 60s

submit                       => Pending; due 30s
wake                         => Processing; request reserve #1 by 60s
agent completes reserve #1   => Processed; reserve completed (output kept); no longer due;
                                event: ended in Processed
agent completes reserve #1 (redelivered)
                             => ignored: DuplicateReply; again event: ended in Processed

submit                       => Pending; due 30s
wake                         => Processing; request reserve #1 by 60s
clock +1s
agent fails reserve #1 "no stock"
                             => Error; reserve failed (failures 1, reason kept); due 31s;
                                alert reserve "step reserve: no stock";
                                event: ended in Error
