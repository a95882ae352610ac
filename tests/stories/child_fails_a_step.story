# A child task that is Undone, in Error, or refused is a permanent failure of the step.
workflow within 2h
  pack: workflow packing, then undo

submit                       => Pending; due 30s
wake                         => Processing; submit o-1:pack to packing with null
child of pack is Undone "no boxes"
                             => Undone because "step pack: its child task was undone: no boxes"; pack
                                failed (failures 1, reason kept); no longer due
submit                       => Pending; due 30s
wake                         => Processing; submit o-1:pack to packing with null
child of pack is refused "there is no workflow `packing`"
                             => Undoing because "step pack: its child task was refused: there is no
                                workflow `packing`"; pack failed (failures 1, may have run, reason
                                kept); submit o-1:pack to packing with null, undo
child of pack is Undone "undone before it began"
                             => Undone; pack undone (output kept); no longer due
submit                       => Pending; due 30s
wake                         => Processing; submit o-1:pack to packing with null
child of pack is in Error "step box: no"
                             => Undoing because "step pack: its child task is in Error: step box: no";
                                pack failed (failures 1, may have run, reason kept); submit o-1:pack
                                to packing with null, undo
child of pack is Undone "asked for by task o-1"
                             => Undone; pack undone (output kept); no longer due
submit                       => Pending; due 30s
wake                         => Processing; submit o-1:pack to packing with null
child of pack is in Error "step box: no"
                             => Undoing because "step pack: its child task is in Error: step box: no";
                                pack failed (failures 1, may have run, reason kept); submit o-1:pack
                                to packing with null, undo
child of pack is in Error "step box: no"
                             => ignored: StaleReply
child of pack is in Error "undo of step box: no", not undone
                             => Error; undo of pack failed (failures 1, may have run, reason kept);
                                alert: left to undo pack "undo of step pack: its child task is in
                                Error: undo of step box: no"
