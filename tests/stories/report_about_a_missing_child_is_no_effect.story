# The submission function reports that a child task has expired, without a revision. After an undo by hand that is no news.
workflow within 2h
  pack: workflow packing, then undo
  note: then undo

submit => Pending; due 30s
wake => Processing; submit o-1:pack to packing with null; request note #1 by 60s
agent fails note #1 "no" => Undoing because "step note: no"; pack failed (may have run); note failed (failures 1, reason kept); submit o-1:pack to packing with null, undo
child of pack is in Error "expired", not undone => Error; undo of pack failed (failures 1, may have run, reason kept); alert: left to undo pack "undo of step pack: its child task is in Error: expired"
ann completes pack           => Undone; pack undone (output kept); published: complete pack
child of pack is in Error "expired", not undone => ignored: DuplicateReply
