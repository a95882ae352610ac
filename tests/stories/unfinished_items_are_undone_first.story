# An undo begins with the items that have not completed: the child task of such an item may still be
# running, or its submission may still be in a queue. Otherwise it would run beside the undo of another.
workflow within 2h
  pack: for each ${ input.items } 1 at once, workflow packing, body ${ item }, then undo
  check: then undo

submit with {"items":["tea","ink"]}
                             => Pending; due 30s
wake                         => Processing; pack running, 2 items; submit o-1:pack:0 to packing with "tea";
                                request check #1 by 60s
child of pack[0] is Processed with "T"
                             => pack[0] completed (output kept); submit o-1:pack:1 to packing with "ink"
agent fails check #1 "no"    => Undoing because "step check: no"; pack[1] failed (may have run);
                                check failed (failures 1, reason kept);
                                submit o-1:pack:1 to packing with "ink", undo
child of pack[1] is Undone   => pack[1] undone (output kept); submit o-1:pack:0 to packing with "tea", undo
child of pack[0] is Undone   => Undone; pack[0] undone (output kept); no longer due
