# The child task is past its point of no return, so an operator settles the undo of its step. Then the child changes: it fails again, or
# completes. The task stops with an alert each time, and a resubmit requests the undo of the child again.
workflow within 2h
  pack: workflow packing, then undo
  note: then undo

submit => Pending; due 30s
wake => Processing; submit o-1:pack to packing with null; request note #1 by 60s
agent fails note #1 "no" => Undoing because "step note: no"; pack failed (may have run); note failed (failures 1, reason kept); submit o-1:pack to packing with null, undo
child o-1:pack at revision 5 of pack is in Error "stuck", not undone => Error; pack failed; undo of pack failed (failures 1, may have run, reason kept); alert: left to undo pack "undo of step pack: its child task is in Error: stuck"
ann completes pack           => Undone; pack undone (output kept); published: complete pack
child o-1:pack at revision 5 of pack is in Error "stuck", not undone => ignored: DuplicateReply
child o-1:pack at revision 7 of pack is in Error "stuck again", not undone => Error; the undo is final; pack failed; undo of pack failed; due 30s; alert: left to undo pack "the child task of step pack took effect after its undo"
ann completes pack           => Undone; pack undone (output kept); published: complete pack
child o-1:pack at revision 9 of pack is Processed with {"box":1} => Error; pack failed; undo of pack failed; due 30s; alert: left to undo pack "the child task of step pack took effect after its undo"
child o-1:pack at revision 9 of pack is Processed with {"box":1} => ignored: DuplicateReply
ann resubmits => Undoing; undo of pack running (failures 0); due 7200s; submit o-1:pack to packing with null, undo; published: resubmit pack
child o-1:pack at revision 12 of pack is Undone "asked" => Undone; pack failed; pack undone (output kept); no longer due
child o-1:pack at revision 9 of pack is Processed with {"box":1} => ignored: StaleReply
