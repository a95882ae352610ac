# While a task is undone, a refused step proves to have run, and its undo cannot be created from what is known of it.
workflow within 10m
  reserve: then undo, undo
  charge: after reserve, then undo, undo (path /refunds/${ steps.charge.output.id })

submit => Pending; due 30s
wake => Processing; request reserve #1 by 60s
agent completes reserve #1 => reserve completed (output kept); request charge #1 by 60s
agent fails charge #1 "402" => Undoing because "step charge: 402"; charge failed (failures 1, reason kept); request undo of reserve #1 by 60s
agent completes charge #1 => Error; charge completed (may have run, output kept); undo of charge failed (failures 1, reason kept); alert: left to undo reserve, charge "undo of step charge: expression `steps.charge.output.id`: there is no `id`"
