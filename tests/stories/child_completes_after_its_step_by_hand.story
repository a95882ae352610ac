# An operator completes the step of a child task, and later its undo. Then the child completes.
workflow within 2h
  pack: workflow packing, attempts 1
  ship: after pack, undo

submit => Pending; due 30s
wake => Processing; submit o-1:pack to packing with null
clock +62s
sweep => Error; pack failed (failures 1, may have run, reason kept); due 92s; alert pack "step pack: no reply by complete-by, attempt 1"
ann completes pack => Processing; task by 7262s; pack completed (output kept); due 122s; request ship #1 by 122s; published: complete pack
agent completes ship #1 => Processed; ship completed (output kept); no longer due
ann undoes => Undoing because "requested by ann: a test"; due 122s; request undo of ship #1 by 122s; published: undo
ann completes pack => pack undone (output kept); published: complete pack
agent completes undo of ship #1 => Undone; ship undone (output kept); no longer due
child o-1:pack at revision 4 of pack is Processed => Error; the undo is final; pack completed; undo of pack failed; due 92s; alert: left to undo pack "the child task of step pack took effect after its undo"
child o-1:pack at revision 4 of pack is Processed => ignored: DuplicateReply
submit => Pending; due 92s
wake => Processing; submit o-1:pack to packing with null
child of pack is refused "no workflow", id taken => Error; pack failed (failures 1, reason kept); alert pack "step pack: its child task was refused: no workflow"
ann completes pack => Processing; pack completed (output kept); due 122s; request ship #1 by 122s; published: complete pack
child o-1:pack at revision 4 of pack is Processed => Error; pack completed; due 92s; alert pack "step pack took effect, and an operator completed it"
child o-1:pack at revision 4 of pack is Processed => ignored: DuplicateReply
