# A child task was Processed, and its step completed. Then an effect comes to light in the child: the task stops in Error, too, also if
# it was Processed. Other errors of the child are from before its end.
workflow within 2h
  pack: workflow packing, then undo

submit => Pending; due 30s
wake => Processing; submit o-1:pack to packing with null
child o-1:pack at revision 4 of pack is Processed => Processed; pack completed (output kept); no longer due
child o-1:pack at revision 3 of pack is in Error "earlier" => ignored: DuplicateReply
child o-1:pack at revision 6 of pack is in Error "contradiction", was Processed => Error; pack completed; due 30s; alert "step pack: its child task is in Error: contradiction"
child o-1:pack at revision 6 of pack is in Error "contradiction", was Processed => ignored: DuplicateReply
ann resubmits                => Processed; published: resubmit
child o-1:pack at revision 6 of pack is in Error "contradiction", was Processed => ignored: DuplicateReply
ann undoes => Undoing because "requested by ann: a test"; due 7200s; submit o-1:pack to packing with null, undo; published: undo
child o-1:pack at revision 8 of pack is in Error "contradiction", was Processed => ignored: StaleReply
child o-1:pack at revision 9 of pack is Undone "asked" => Undone; pack completed; pack undone (output kept); no longer due
submit for load of q-1 => Pending; due 30s
wake => Processing; submit o-1:pack to packing with null
child o-1:pack at revision 4 of pack is Processed => Processed; pack completed (output kept); no longer due; report to load of q-1: Processed with null
child o-1:pack at revision 6 of pack is in Error "contradiction", was Processed => Error; pack completed; due 30s; alert "step pack: its child task is in Error: contradiction"; report to load of q-1: in Error "step pack: its child task is in Error: contradiction", was Processed
ann undoes => refused: the task ran for step load of task q-1, which depends on it: undo that task instead
parent requests undo => Undoing because "requested by task q-1"; due 7200s; submit o-1:pack to packing with null, undo
child o-1:pack at revision 9 of pack is Undone "asked" => Undone; pack completed; pack undone (output kept); no longer due; report to load of q-1: Undone "requested by task q-1"
