# A request that cannot be created starts the undo, and the wake for the undo is lost. The supervisor
# repeats it.
timing   clock skew 2s, pickup within 30s
workflow within 10m
  reserve: undo
  charge:  after reserve, path ${ steps.reserve.output.path }, then undo

submit                       => Pending; due 30s
wake                         => Processing; request reserve #1 by 60s
agent completes reserve #1 with {}
                             => Undoing because "step charge: expression
                                `steps.reserve.output.path`: there is no `path`";
                                reserve completed (output kept);
                                charge failed (failures 1, reason kept); wake scheduler
# The redelivered message sends its wake again.
agent completes reserve #1 with {} (redelivered)
                             => ignored: DuplicateReply; again wake scheduler
clock +32s
sweep                        => due 62s; wake scheduler
wake                         => request undo of reserve #1 by 92s
agent completes undo of reserve #1
                             => Undone; reserve undone (output kept); no longer due
