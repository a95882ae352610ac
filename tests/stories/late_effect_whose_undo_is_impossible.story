# A task is Undone. Then a refused step proves to have run, and its undo cannot be created from what is known of it.
workflow within 10m
  charge: then undo, undo (path /refunds/${ steps.charge.output.id })

submit => Pending; due 30s
wake => Processing; request charge #1 by 60s
agent fails charge #1 "402" => Undone because "step charge: 402"; charge failed (failures 1, reason kept); no longer due
agent cuts charge #1 "slow" => Undoing; task by 662s; the undo is final; charge failed (may have run, call may be in progress until 62s); due 92s; wake scheduler in 62s
submit => Pending; due 30s
wake => Processing; request charge #1 by 60s
agent fails charge #1 "402" => Undone because "step charge: 402"; charge failed (failures 1, reason kept); no longer due
agent completes charge #1 => Error; the undo is final; charge completed (may have run, output kept); undo of charge failed (failures 1, reason kept); due 30s; alert: left to undo charge "undo of step charge: expression `steps.charge.output.id`: there is no `id`"
