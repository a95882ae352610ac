# A refused step was completed by hand. Then its request proves to have run: the task stops in Error, because the effect is there twice.
workflow within 10m
  charge: then alert, undo (body ${ steps.charge.output.charge })

submit => Pending; due 30s
wake => Processing; request charge #1 by 60s
agent fails charge #1 "422" => Error; charge failed (failures 1, reason kept); alert charge "step charge: 422"
ann completes charge with {"charge":"till"} => Processed; charge completed (output kept); no longer due; published: complete charge
agent completes charge #1 with {"charge":"ch-1"} => Error; charge completed (may have run); due 30s; alert "step charge: the undo does not revert its earlier call: attempt 1 may have run beside its completion by hand"
agent completes charge #1 with {"charge":"ch-1"} => ignored: StaleReply
ann undoes => Undoing because "requested by ann: a test"; charge completed; due 60s; request undo of charge #1 by 60s with "till"; published: undo
agent completes undo of charge #1 => Undone; charge undone (output kept); no longer due
