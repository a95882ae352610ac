# A refused attempt took effect after all. Its key is not the one of the step any more, because of an edit. The
# undo reverts only the second charge, so the task stops with an alert.
workflow within 10m
  charge: within 60s, then alert, body ${ input.n }, undo (body ${ input.n })
  ship:   after charge, within 60s, then undo

submit with {"n":10}         => Pending; due 30s
wake                         => Processing; request charge #1 by 60s with 10
agent fails charge #1 "HTTP 422" => Error; charge failed (failures 1, reason kept); alert charge "step charge: HTTP 422"
ann resubmits charge with input {"n":5} => Processing; charge running (failures 0); input {"n":5} kept; due 60s; request charge #2 by 60s with 5 under key o-1/charge/do/c-1; published: resubmit charge with edited input
agent completes charge #2    => charge completed (output kept); request ship #1 by 60s under key o-1/ship/do/c-1
agent completes charge #1 => Error; document step/charge/1/output; due 30s; alert charge "step charge: attempt 1 ran with the input before its edit too: `undo` the task, or revert one effect at its service and `resubmit --did-not-run`"
agent completes charge #1 (redelivered) => ignored: StaleReply; again alert charge "step charge: attempt 1 ran with the input before its edit too: `undo` the task, or revert one effect at its service and `resubmit --did-not-run`"
agent fails ship #1 "no"     => Undoing because "step ship: no"; ship failed (failures 1, reason kept); request
                                undo of charge #1 by 60s with 10; alert charge "step charge: attempt 1 ran with
                                the input before its edit too: `undo` the task, or revert one effect at its
                                service and `resubmit --did-not-run`"
