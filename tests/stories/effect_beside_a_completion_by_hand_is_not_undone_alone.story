# A step ran, and an operator completed it by hand. An undo by another step's failure can only undo one of the two, because both
# have the same idempotency key. So an operator decides.
workflow within 10m
  charge: then alert, undo (body ${ steps.charge.output.charge })
  ship:   after charge, then undo

submit => Pending; due 30s
wake => Processing; request charge #1 by 60s
agent fails charge #1 "422" => Error; charge failed (failures 1, reason kept); alert charge "step charge: 422"
ann completes charge with {"charge":"till"} => Processing; charge completed (output kept); due 60s; request ship #1 by 60s; published: complete charge
agent completes charge #1 with {"charge":"ch-1"} => Error; due 30s; alert charge "step charge took effect, and an operator completed it: `undo` the task, or revert one effect at its service and `resubmit --did-not-run`"
ann resubmits                => Processing; published: resubmit
agent fails ship #1 "no" => Undoing because "step ship: no"; ship failed (failures 1, reason kept); request undo of charge #1 by 60s with "till"
agent completes undo of charge #1 => Error; charge undone (output kept); due 30s; alert: left to undo "step charge ran, and an operator completed it; one of the two is undone: check both, then resubmit"
ann resubmits                => Undone; published: resubmit
