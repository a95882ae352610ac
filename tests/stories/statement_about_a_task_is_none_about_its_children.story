# Only a child task itself can report that its effects are gone. So a statement about the whole task is refused while an earlier
# child may have some.
workflow within 2h
  pack: workflow packing

submit with {"x":1}          => Pending; due 30s
wake                         => Processing; submit o-1:pack to packing with null
child o-1:pack at revision 3 of pack is Undone "no boxes" => Error; pack failed (failures 1, reason kept); alert pack "step pack: its child task was undone: no boxes"
ann resubmits pack with input {"x":2} => Processing; pack running (failures 0); input {"x":2} kept; due 60s; submit o-1:pack:c-1 to packing with null; published: resubmit pack with edited input
child o-1:pack at revision 4 of pack is in Error "contradiction" => Error; due 30s; alert pack "step pack: attempt 1 may have run with the input before its edit too"
child o-1:pack:c-1 at revision 3 of pack is Undone "no boxes"
                             => pack failed (failures 1, reason kept); alert pack "step pack: its child task was
                                undone: no boxes; step pack: attempt 1 may have run with the input before its
                                edit too"
ann resubmits, it did not run => refused: an attempt at step pack may have taken effect: check the service, then complete the step, or resubmit it with the statement that it did not run
