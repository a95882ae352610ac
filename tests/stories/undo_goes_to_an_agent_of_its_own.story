# The undo of a step may name another agent than the one that ran the step.
workflow within 10m
  reserve: undo (at desk, path /cancel)
  pay: after reserve, then undo

submit                       => Pending; due 30s
wake                         => Processing; request reserve #1 by 60s
agent completes reserve #1   => reserve completed (output kept); request pay #1 by 60s
agent fails pay #1 "no"      => Undoing because "step pay: no"; pay failed (failures 1, reason kept);
                                request undo of reserve #1 to desk by 60s at /cancel
agent completes undo of reserve #1
                             => Undone; reserve undone (output kept); no longer due
