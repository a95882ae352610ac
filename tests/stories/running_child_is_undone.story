# The parent requests the undo of its running children at once; the result is the same if a child has
# completed meanwhile. A refusal does not prove that the child never started.
workflow within 2h
  pack:  for each ${ input.items } 2 at once, workflow packing, body ${ item }
  check: then undo

submit with {"items":[1,2,3]}
                             => Pending; due 30s
wake                         => Processing; pack running, 3 items; submit o-1:pack:0 to packing with 1;
                                submit o-1:pack:1 to packing with 2; request check #1 by 60s
child of pack[0] is Processed with 1
                             => pack[0] completed (output kept); submit o-1:pack:2 to packing with 3
agent fails check #1 "no"    => Undoing because "step check: no"; pack[1] failed (may have run);
                                pack[2] failed (may have run); check failed (failures 1, reason kept);
                                submit o-1:pack:1 to packing with 2, undo;
                                submit o-1:pack:2 to packing with 3, undo
child of pack[1] is Processed with 2
                             => ignored: StaleReply
child of pack[1] is Undone    => pack[1] undone (output kept);
                                submit o-1:pack:0 to packing with 1, undo
child of pack[0] is Undone    => pack[0] undone (output kept)
child of pack[2] is refused "there is no workflow `packing`"
                             => ignored: StaleReply
child of pack[2] is Undone    => Undone; pack[2] undone (output kept); no longer due
