# An operator settles an Error: nothing is sent or undone. What continues the task opens the question again. There is nothing to
# settle in another state.
workflow within 10m
  charge: within 60s, undo
  ship:   within 60s

submit                       => Pending; due 30s
ann resolves                 => refused: the task is Pending, and has no Error to resolve
wake                         => Processing; request charge #1 by 60s; request ship #1 by 60s
ann resolves                 => refused: the task is Processing, and has no Error to resolve
agent fails charge #1 "no"   => Error; charge failed (failures 1, reason kept); alert charge "step charge: no"
ann resolves                 => refused: a step that has started goes on: wait for its end
agent completes ship #1      => ship completed (output kept); no longer due
ann resolves                 => settled; published: resolve
ann resolves                 => refused: the Error is resolved
ann resubmits charge         => Processing; no longer settled; charge running (failures 0); due 60s; request charge #2 by 60s; published: resubmit charge
agent completes charge #2    => Processed; charge completed (output kept); no longer due
ann resolves                 => refused: the task is Processed, and has no Error to resolve
ann undoes                   => Undoing because "requested by ann: a test"; due 60s; request undo of charge #1 by 60s; published: undo
ann resolves                 => refused: the task is Undoing, and has no Error to resolve
agent completes undo of charge #1 => Undone; charge undone (output kept); no longer due
ann resolves                 => refused: the task is Undone, and has no Error to resolve
