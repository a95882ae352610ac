# A Processed child task is not undone by a command, because its parent would not be undone.
workflow within 10m
  box: undo

submit for pack of p-1       => Pending; due 30s
wake                         => Processing; request box #1 by 60s
agent completes box #1       => Processed; box completed (output kept); no longer due; report to pack of
                                p-1: Processed with null
ann undoes                   => refused: the task ran for step pack of task p-1, which depends on it:
                                undo that task instead
parent requests undo           => Undoing because "requested by task p-1"; due 60s; request undo of box
                                #1 by 60s

# A child in Error can be undone by a command.
submit for pack of p-1       => Pending; due 30s
wake                         => Processing; request box #1 by 60s
agent fails box #1 "no boxes"
                             => Error; box failed (failures 1, reason kept); alert box "step box: no
                                boxes"; report to pack of p-1: in Error "step box: no boxes"
ann undoes                   => Undone because "requested by ann: a test"; published: undo; report to pack of
                                p-1: Undone "requested by ann: a test"
