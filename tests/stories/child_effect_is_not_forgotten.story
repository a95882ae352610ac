# A child task takes effect late. An earlier report, which is delivered once more, changes nothing: the child is asked to undo that.
workflow within 2h
  pack: workflow packing, then undo

submit => Pending; due 30s
wake => Processing; submit o-1:pack to packing with null
child o-1:pack at revision 5 of pack is Undone "x" => Undone because "step pack: its child task was undone: x"; pack failed (failures 1, reason kept); no longer due
child o-1:pack at revision 7 of pack is in Error "late", not undone => Undoing; the undo is final; pack failed (may have run); due 7200s; submit o-1:pack to packing with null, undo
child o-1:pack at revision 5 of pack is Undone "x" => ignored: StaleReply
child o-1:pack at revision 9 of pack is Undone "asked" => Undone; pack failed; pack undone (output kept); no longer due
