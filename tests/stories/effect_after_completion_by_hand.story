# A refused step was completed by hand. Then its request proves to have run: the task stops in Error, because the effect is there twice.
workflow within 10m
  charge: then alert, undo (body ${ steps.charge.output.charge })

submit => Pending; due 30s
wake => Processing; request charge #1 by 60s
agent fails charge #1 "422" => Error; charge failed (failures 1, reason kept); alert charge "step charge: 422"
ann completes charge with {"charge":"till"}
                             => Processed; charge completed (output kept); published: complete charge
agent completes charge #1 with {"charge":"ch-1"} => Error; due 30s; alert charge "step charge took effect, and an operator completed it: `undo` the task, or revert one effect at its service and `resubmit --did-not-run`"
agent completes charge #1 with {"charge":"ch-1"} => ignored: DuplicateReply
ann undoes => Undoing because "requested by ann: a test"; due 60s; request undo of charge #1 by 60s with "till"; published: undo
agent completes undo of charge #1 => Undone; charge undone (output kept); no longer due
