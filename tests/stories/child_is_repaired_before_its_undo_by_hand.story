# A child task failed, was repaired and completed. An operator settles its undo. A repeated report of its end is no news.
workflow within 2h
  pack: workflow packing, then alert
  ship: after pack, then undo

submit => Pending; due 30s
wake => Processing; submit o-1:pack to packing with null
child o-1:pack at revision 5 of pack is in Error "stuck" => Error; pack failed (failures 1, may have run, reason kept); alert pack "step pack: its child task is in Error: stuck"
ann resubmits => Processing; pack running (failures 0); due 60s; submit o-1:pack to packing with null; published: resubmit pack
child o-1:pack at revision 9 of pack is Processed => pack completed (output kept); request ship #1 by 60s
agent fails ship #1 "no" => Undoing because "step ship: no"; ship failed (failures 1, reason kept); submit o-1:pack to packing with null, undo
child o-1:pack at revision 11 of pack is in Error "stuck", not undone => Error; pack completed; undo of pack failed (failures 1, may have run, reason kept); due 30s; alert: left to undo pack "undo of step pack: its child task is in Error: stuck"
ann completes pack           => Undone; pack undone (output kept); published: complete pack
child o-1:pack at revision 9 of pack is Processed => ignored: StaleReply
child o-1:pack at revision 11 of pack is in Error "stuck", not undone => ignored: DuplicateReply
