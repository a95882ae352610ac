# An operator skips a step whose child may have effects. The task is undone, and the operator settles the undo of the step. When the
# child goes on after that, the alert names the step.
workflow within 2h
  pack: workflow packing, then alert
  note: after pack, then undo

submit                       => Pending; due 30s
wake                         => Processing; submit o-1:pack to packing with null
child o-1:pack at revision 5 of pack is in Error "stuck"
                             => Error; pack failed (failures 1, may have run, reason kept); alert pack "step
                                pack: its child task is in Error: stuck"
ann skips pack               => Processing; pack skipped; due 60s; request note #1 by 60s; published: skip pack
agent fails note #1 "no"     => Undoing because "step note: no"; note failed (failures 1, reason kept); submit
                                o-1:pack to packing with null, undo
child o-1:pack at revision 6 of pack is in Error "stuck", not undone
                             => Error; pack skipped; undo of pack failed (failures 1, may have run, reason
                                kept); due 30s; alert: left to undo pack "undo of step pack: its child task is
                                in Error: stuck"
ann completes pack           => Undone; pack undone (output kept); published: complete pack
child o-1:pack at revision 9 of pack is in Error "stuck again"
                             => Error; the undo is final; pack skipped; undo of pack failed; due 30s; alert:
                                left to undo pack "the child task of step pack took effect after its undo"
