# An operator has settled the Error. A step changes nevertheless: another delivery of its request took effect. The task is not settled
# any more, and there is another alert.
workflow within 10m
  charge: within 60s, undo

submit                       => Pending; due 30s
wake                         => Processing; request charge #1 by 60s
agent fails charge #1 "no"   => Error; charge failed (failures 1, reason kept); alert charge "step charge: no"
ann resolves                 => settled; published: resolve
agent completes charge #1    => no longer settled; charge completed (may have run, output kept); due 30s; alert "a step changed after an operator had settled the Error; step charge: no"
ann undoes                   => Undoing because "requested by ann: a test"; due 60s; request undo of charge #1 by 60s; published: undo
