# A Processed task that ran for a step of another is not undone by a command of its own: the other
# would not be.
workflow within 10m
  box: undo

submit for pack of p-1       => Pending; due 30s
wake                         => Processing; request box #1 by 60s
agent completes box #1       => Processed; box completed (output kept); no longer due; tell pack of
                                p-1: Processed with null
ann undoes                   => refused: the task ran for step pack of task p-1, which depends on
                                it: undo that task instead
asked to be undone           => Undoing because "requested by task p-1"; due 60s; request undo of
                                box #1 by 60s

# One in Error may be.
submit for pack of p-1       => Pending; due 30s
wake                         => Processing; request box #1 by 60s
agent fails box #1 "no boxes"
                             => Error; box failed (failures 1, reason kept); alert box "step box: no
                                boxes"; tell pack of p-1: in Error "step box: no boxes"
ann undoes                   => Undone because "requested by ann: a test"; no longer due; told:
                                undo; tell pack of p-1: Undone "requested by ann: a test"
