# An operator completes the step of a child task that is late. The child takes effect after all, and later once more.
workflow within 2h
  pack: workflow packing, attempts 1
  ship: after pack, undo

submit => Pending; due 30s
wake => Processing; submit o-1:pack to packing with null
clock +62s
sweep => Error; pack failed (failures 1, may have run, reason kept); due 92s; alert pack "step pack: no reply by complete-by, attempt 1"
ann completes pack => Processing; task by 7262s; pack completed (output kept); due 122s; request ship #1 by 122s; published: complete pack
child o-1:pack at revision 3 of pack is in Error "x" => pack completed
child o-1:pack at revision 4 of pack is Processed => Error; pack completed; due 92s; alert pack "step pack took effect, and an operator completed it"
child o-1:pack at revision 4 of pack is Processed => ignored: DuplicateReply
ann resubmits                => Processing; published: resubmit
agent completes ship #1 => Processed; ship completed (output kept); no longer due
child o-1:pack at revision 6 of pack is in Error "contradiction", was Processed => Error; pack completed; due 92s; alert pack "step pack: its child task is in Error: contradiction"
child o-1:pack at revision 6 of pack is in Error "contradiction", was Processed => ignored: DuplicateReply

# The same if the operator skips the step.
submit => Pending; due 92s
wake => Processing; submit o-1:pack to packing with null
clock +62s
sweep => Error; pack failed (failures 1, may have run, reason kept); due 154s; alert pack "step pack: no reply by complete-by, attempt 1"
ann skips pack => Processing; task by 7324s; pack skipped; due 184s; request ship #1 by 184s; published: skip pack
child o-1:pack at revision 3 of pack is in Error "x" => pack skipped
child o-1:pack at revision 4 of pack is Processed => Error; pack skipped; due 154s; alert "step pack took effect, and it was skipped"
child o-1:pack at revision 4 of pack is Processed => ignored: DuplicateReply
