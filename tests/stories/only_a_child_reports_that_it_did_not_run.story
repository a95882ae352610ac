# Only the child task itself can report whether it ran. When it is undone it reports that, and then
# the input can be edited.
workflow within 2h
  pack: workflow packing

submit with {"x":1}          => Pending; due 30s
wake                         => Processing; submit o-1:pack to packing with null
child o-1:pack at revision 3 of pack is in Error "no boxes"
                             => Error; pack failed (failures 1, may have run, reason kept); alert pack
                                "step pack: its child task is in Error: no boxes"
ann skips pack, it did not run because "nobody saw it"
                             => refused: step pack runs task `o-1:pack`, which may be running or
                                completed: undo that task, or this task as a whole
ann resubmits pack with input {"x":2}, it did not run
                             => refused: step pack runs task `o-1:pack`, which may be running or
                                completed: undo that task, or this task as a whole
child o-1:pack at revision 6 of pack is Undone "asked for by ann"
                             => pack failed (did not run)
child o-1:pack at revision 3 of pack is in Error "no boxes"
                             => ignored: StaleReply
ann resubmits pack with input {"x":2}
                             => Processing; pack running (failures 0); input {"x":2} kept; due 60s;
                                submit o-1:pack:c-3 to packing with null; published: resubmit pack with
                                edited input
