# If the workflow chooses lifecycle events, they are published on the bus: when the task leaves Pending, when a step completes
# or fails, and when the task ends. A redelivered message publishes again what it may have caused, with the same ids.
workflow within 10m, with lifecycle events
  reserve: within 60s

submit                       => Pending; due 30s
wake                         => Processing; request reserve #1 by 60s; event: submitted
wake (redelivered)           => ignored: NothingReady; again request reserve #1 by 60s; again event: submitted
agent completes reserve #1   => Processed; reserve completed (output kept); no longer due;
                                event: processed; event: reserve #1 completed
agent completes reserve #1   => ignored: DuplicateReply
agent completes reserve #1 (redelivered)
                             => ignored: DuplicateReply; again event: processed; again event: reserve #1 completed
wake (redelivered)           => ignored: Ended; again event: processed; again event: submitted

submit                       => Pending; due 30s
wake                         => Processing; request reserve #1 by 60s; event: submitted
clock +1s
agent fails reserve #1 "no stock"
                             => Error; reserve failed (failures 1, reason kept); due 31s;
                                alert reserve "step reserve: no stock";
                                event: error; event: reserve #1 failed
