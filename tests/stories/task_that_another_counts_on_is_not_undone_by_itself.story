# A Processed task that ran for a step of another is not undone by a command of its own: the other
# would not be.
workflow within 10m
  box: undo

submit for pack of p-1       => Pending; due 30s
wake                         => Processing; request box #1 by 60s
agent completes box #1       => Processed; box completed (output kept); no longer due; report to pack of
                                p-1: Processed with null
ann undoes                   => refused: it ran for step pack of task p-1, which counts on it: undo
                                that task
parent requests undo           => Undoing because "asked for by task p-1"; due 60s; request undo of
                                box #1 by 60s

# One in Error may be.
submit for pack of p-1       => Pending; due 30s
wake                         => Processing; request box #1 by 60s
agent fails box #1 "no boxes"
                             => Error; box failed (failures 1, reason kept); alert box "step box: no
                                boxes"; report to pack of p-1: in Error "step box: no boxes"
ann undoes                   => Undone because "asked for by ann: a test"; no longer due; published:
                                undo; report to pack of p-1: Undone "asked for by ann: a test"
