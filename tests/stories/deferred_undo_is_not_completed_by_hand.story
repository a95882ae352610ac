# A deferred undo may have been delivered twice, and the other delivery may call the service. So an operator who has undone the
# step by hand waits until that is over.
workflow within 10m
  charge: undo (within 20s)
  ship:   after charge, then undo

submit                       => Pending; due 30s
wake                         => Processing; request charge #1 by 60s
agent completes charge #1    => charge completed (output kept); request ship #1 by 60s
agent fails ship #1 "HTTP 402" => Undoing because "step ship: HTTP 402"; ship failed (failures 1, reason kept); due 20s; request undo of charge #1 by 20s
agent defers undo of charge #1 for 300s "breaker open"
                             => undo of charge waiting until 300s (reason kept); wake scheduler in 300s
ann completes charge         => refused: a call of step charge may be in progress until 1970-01-01T00:00:42Z: wait until then
clock +42s
ann completes charge         => Undone; charge undone (call may be in progress until 42s, output kept); no longer due; published: complete charge
