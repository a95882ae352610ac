# Whether a task that runs for a step has run, only that task can say. Once it is undone it says so, and
# then the input can be edited.
workflow within 2h
  pack: workflow packing

submit with {"x":1}          => Pending; due 30s
wake                         => Processing; submit o-1:pack to packing with null
task o-1:pack at 3 of pack is in Error "no boxes"
                             => Error; pack failed (failures 1, may have run, reason kept); alert
                                pack "step pack: its child task is in Error: no boxes"
ann skips pack, it did not run because "nobody saw it"
                             => refused: step pack runs task `o-1:pack`, which may be running or
                                completed: undo that task, or this task as a whole
ann resubmits pack with input {"x":2}, it did not run
                             => refused: step pack runs task `o-1:pack`, which may be running or
                                completed: undo that task, or this task as a whole
task o-1:pack at 6 of pack is Undone "requested by ann"
                             => pack failed (did not run)
task o-1:pack at 3 of pack is in Error "no boxes"
                             => ignored: StaleReply
ann resubmits pack with input {"x":2}
                             => Processing; pack running (failures 0); input {"x":2} kept; due 60s;
                                submit o-1:pack:c-3 to packing with null; told: resubmit pack with
                                edited input
