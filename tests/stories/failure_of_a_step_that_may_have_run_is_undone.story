# An agent may report that a step failed although an earlier call may have taken effect.
workflow within 10m
  reserve: undo
  charge:  after reserve, then undo, undo

submit                       => Pending; due 30s
wake                         => Processing; request reserve #1 by 60s
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 60s
agent fails charge #1 "card declined"
                             => Undoing because "step charge: card declined";
                                charge failed (failures 1, reason kept);
                                request undo of reserve #1 by 60s
agent completes undo of reserve #1
                             => Undone; reserve undone (output kept); no longer due

submit                       => Pending; due 30s
wake                         => Processing; request reserve #1 by 60s
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 60s
agent fails charge #1 "card declined", may have run
                             => Undoing because "step charge: card declined"; task by 722s; charge
                                failed (failures 1, may have run, call may be in progress until 122s, reason
                                kept); wake scheduler in 122s
clock +122s
wake                         => request undo of charge #1 by 182s
agent completes undo of charge #1
                             => charge undone (output kept); request undo of reserve #1 by 182s
agent completes undo of reserve #1
                             => Undone; reserve undone (output kept); no longer due
