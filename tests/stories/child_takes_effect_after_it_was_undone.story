# A step of the child task takes effect after the child was undone, so the child stops in Error, and reports that. Its parent does
# the same, so that the parent above hears of it, too.
workflow within 2h
  pack: workflow packing, then undo
  note: then undo

submit for load of q-1       => Pending; due 30s
wake                         => Processing; submit o-1:pack to packing with null; request note #1 by 60s
child o-1:pack at revision 4 of pack is Processed with {"box":1} => pack completed (output kept)
agent completes note #1      => Processed; note completed (output kept); no longer due;
                                report to load of q-1: Processed with null
parent requests undo         => Undoing because "requested by task q-1"; due 7200s; submit o-1:pack to packing with null, undo
child o-1:pack at revision 6 of pack is Undone "asked" => Undone; pack completed; pack undone (output kept); no longer due;
                                report to load of q-1: Undone "requested by task q-1"
child o-1:pack at revision 4 of pack is Processed with {"box":1} => ignored: StaleReply
child o-1:pack at revision 6 of pack is Undone "asked" => ignored: DuplicateReply
child o-1:pack at revision 8 of pack is in Error "late", not undone
                             => Error; the undo is final; pack completed (may have run); undo of pack failed;
                                due 30s; alert: left to undo pack "the child task of step pack took effect after
                                its undo"; report to load of q-1: in Error "the child task of step pack took
                                effect after its undo", not undone
child o-1:pack at revision 8 of pack is in Error "late", not undone => ignored: DuplicateReply
child o-1:pack at revision 10 of pack is Undone "asked" => pack completed
ann resubmits                => Undoing; due 7200s; submit o-1:pack to packing with null, undo; published: resubmit pack
child o-1:pack at revision 10 of pack is Undone "asked" => Undone; pack undone (output kept); no longer due; report to load of q-1: Undone "requested by task q-1"
