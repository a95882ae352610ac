# Two children of one list take effect after they were undone, so the undos of both items fail, although only one ran at once.
# A command starts both again at once: `at_once` limits the undos that the engine starts.
workflow within 2h
  pack: for each ${ input.items } 1 at once, workflow packing, then undo
  pay: after pack, then undo

submit with {"items":["a","b"]}
                             => Pending; due 30s
wake                         => Processing; pack running, 2 items; submit o-1:pack:0 to packing with null
child o-1:pack:0 at revision 4 of pack[0] is Processed with 1
                             => pack[0] completed (output kept); submit o-1:pack:1 to packing with null
child o-1:pack:1 at revision 4 of pack[1] is Processed with 2
                             => pack completed, 2 items; pack[1] completed (output kept); request pay #1 by 60s
agent fails pay #1 "no"      => Undoing because "step pay: no"; pay failed (failures 1, reason kept);
                                submit o-1:pack:0 to packing with null, undo
child o-1:pack:0 at revision 6 of pack[0] is Undone "asked"
                             => pack[0] completed; pack[0] undone (output kept); submit o-1:pack:1 to packing with null, undo
child o-1:pack:1 at revision 6 of pack[1] is Undone "asked"
                             => Undone; pack[1] completed; pack[1] undone (output kept); no longer due
child o-1:pack:0 at revision 8 of pack[0] is in Error "late", not undone
                             => Error; the undo is final; pack[0] completed (may have run); undo of pack[0] failed; due 30s;
                                alert: left to undo pack[0] "the child task of step pack[0] took effect after its undo"
child o-1:pack:1 at revision 8 of pack[1] is in Error "late", not undone
                             => pack[1] completed (may have run); undo of pack[1] failed;
                                alert: left to undo pack[0], pack[1] "the child task of step pack[1] took effect after its undo;
                                the child task of step pack[0] took effect after its undo"
ann resubmits                => Undoing; due 7200s; submit o-1:pack:0 to packing with null, undo;
                                submit o-1:pack:1 to packing with null, undo; published: resubmit pack[0], pack[1]
child o-1:pack:0 at revision 10 of pack[0] is Undone "asked"
                             => pack[0] completed; pack[0] undone (output kept)
child o-1:pack:1 at revision 10 of pack[1] is Undone "asked"
                             => Undone; pack[1] completed; pack[1] undone (output kept); no longer due
