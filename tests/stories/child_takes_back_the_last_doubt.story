# The scheduler is still to be woken for the undo of a child task when the child reports that it was undone. Nothing is left to undo,
# so the report ends the task.
workflow within 1h
  pack: workflow packing, within 50s, gives up after 60s, then undo

submit                       => Pending; due 30s
wake                         => Processing; submit o-1:pack to packing with null
clock +52s
sweep                        => pack waiting (failures 1, may have run, reason kept); unlocked; due 82s; wake
                                scheduler
wake                         => due 60s; submit o-1:pack to packing with null
clock +10s
sweep                        => Undoing because "step pack: no retry within `give_up_after`: no reply by
                                complete-by, attempt 2"; task by 3662s; pack failed (failures 2, reason kept);
                                unlocked; due 92s; wake scheduler
child o-1:pack at revision 5 of pack is Undone "x" => Undone; pack failed (did not run); no longer due
