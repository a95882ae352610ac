# The undo of a running child task waits for the undo of later items. By hand, it is recorded at once.
workflow within 2h
  pack: for each ${ input.items } 1 at once, workflow packing, then undo
  note: then undo

submit with {"items":[1]}    => Pending; due 30s
wake                         => Processing; pack running, 1 items; submit o-1:pack:0 to packing with null; request note #1 by 60s
agent fails note #1 "no"     => Undoing because "step note: no"; pack[0] failed (may have run); note failed (failures 1, reason kept); submit o-1:pack:0 to packing with null, undo
ann completes pack[0]        => refused: step pack[0] is running
child of pack[0] is Processed => ignored: StaleReply
