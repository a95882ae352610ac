# The undo of a step may name another agent than the one that ran the step.
workflow within 10m
  reserve: agents stock and spare, undo (at desk, path /cancel)
  pay: after reserve, then undo

submit                       => Pending; due 30s
wake                         => Processing; request reserve #1 to stock by 60s
agent defers reserve #1 for 5s "open", for certain
                             => document step/reserve/1/deferral; request reserve #2 to spare by 60s
agent completes reserve #2   => reserve completed (output kept); request pay #1 by 60s
agent fails pay #1 "no"      => Undoing because "step pay: no"; pay failed (failures 1, reason kept);
                                request undo of reserve #1 to desk by 60s at /cancel
agent completes undo of reserve #1
                             => Undone; reserve undone (output kept); no longer due
