# An input that fits alone, but not in the submission of its child task, fails the step at once. The longest of its
# submissions counts, which is that of the undo.
workflow
  reserve: within 60s, undo
  pack:    after reserve, workflow packing, body ${ steps.reserve.output }, within 30m, then undo

submit                       => Pending; due 30s
wake                         => Processing; request reserve #1 by 60s
clock +1s
agent completes reserve #1 with 131000 bytes
                             => Undoing because "step pack: a child submission of 131236 bytes; the limit is 131072";
                                task by 3601s; reserve completed (output kept);
                                pack failed (failures 1, reason kept); wake scheduler
wake                         => request undo of reserve #1 by 61s
agent completes undo of reserve #1
                             => Undone; reserve undone (output kept); no longer due
