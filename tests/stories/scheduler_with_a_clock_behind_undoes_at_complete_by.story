# As in scheduler_with_a_clock_behind_goes_on_at_complete_by, but the policy undoes the task.
timing   clock skew 2s, pickup within 30s
workflow within 50s
  reserve: within 50s
  charge:  after reserve, path ${ steps.reserve.output.path }, then undo

submit                       => Pending; due 30s
wake                         => Processing; request reserve #1 by 50s
clock +50s
agent completes reserve #1 with {}
                             => reserve completed (output kept)
clock -1s
wake                         => Undoing because "step charge: expression
                                `steps.reserve.output.path`: there is no `path`"; task by 99s;
                                charge failed (failures 1, reason kept); wake scheduler
wake                         => Undone; no longer due
