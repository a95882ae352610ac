# The undo of an earlier key goes on when the key in use proves to have run, too. Its output is kept, because its undo reads it.
workflow within 10m
  charge: within 60s, then alert, body ${ input.n }, undo (body ${ steps.charge.output })

submit with {"n":10}         => Pending; due 30s
wake                         => Processing; request charge #1 by 60s with 10
agent fails charge #1 "HTTP 422" => Error; charge failed (failures 1, reason kept); alert charge "step charge: HTTP 422"
ann resubmits charge with input {"n":5} => Processing; charge running (failures 0); input {"n":5} kept; due 60s; request charge #2 by 60s with 5 under key o-1/charge/do/c-1; published: resubmit charge with edited input
agent completes charge #1 with {"id":1} => Error; document step/charge/1/output; due 30s; alert charge "step charge: attempt 1 ran with the input before its edit too: `undo` the task, or revert one effect at its service and `resubmit --did-not-run`"
agent fails charge #2 "HTTP 402"
                             => charge failed (failures 1, reason kept); alert charge "step charge: HTTP 402;
                                step charge: attempt 1 ran with the input before its edit too: `undo` the task,
                                or revert one effect at its service and `resubmit --did-not-run`"
ann undoes                   => Undoing because "requested by ann: a test"; due 60s; request undo of charge #1 by 60s with {"id":1}; published: undo
agent completes charge #2 with {"id":2} => charge completed (may have run, output kept)
agent completes undo of charge #1 => document undo/charge/1/output; request undo of charge #2 by 60s with {"id":2} under key o-1/charge/undo/c-1
agent completes undo of charge #2 => Undone; charge undone (output kept); no longer due
