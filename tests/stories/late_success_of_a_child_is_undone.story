# A child task that counted as undone reports that it is Processed or in Error. It is undone after
# all.
workflow within 2h
  pack: workflow packing, then undo

submit                       => Pending; due 30s
wake                         => Processing; submit o-1:pack to packing with null
child of pack is Undone "no boxes"
                             => Undone because "step pack: its child task was undone: no boxes"; pack
                                failed (failures 1, reason kept); no longer due
child of pack is Processed with {"box":1} => Undoing; the undo is final; pack completed (may have run, output kept); due 7200s; submit o-1:pack to packing with null, undo
child of pack is Undone "asked to"
                             => Undone; pack undone (output kept); no longer due

submit                       => Pending; due 30s
wake                         => Processing; submit o-1:pack to packing with null
child of pack is Undone "no boxes"
                             => Undone because "step pack: its child task was undone: no boxes"; pack
                                failed (failures 1, reason kept); no longer due
child of pack is in Error "step box: no" => Undoing; the undo is final; pack failed (may have run); due 7200s; submit o-1:pack to packing with null, undo
