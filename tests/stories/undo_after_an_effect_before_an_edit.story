# A refused attempt took effect after all, and so did nothing else: the attempt after an edit of the input was refused, too. The undo
# gets the edited input, so the alert says that it does not revert that call.
workflow within 10m
  charge: within 60s, then alert, body ${ input.n }, undo (body ${ input.n })

submit with {"n":10}         => Pending; due 30s
wake                         => Processing; request charge #1 by 60s with 10
agent fails charge #1 "HTTP 422" => Error; charge failed (failures 1, reason kept); alert charge "step charge: HTTP 422"
ann resubmits charge with input {"n":5} => Processing; charge running (failures 0); input {"n":5} kept; due 60s; request charge #2 by 60s with 5 under key o-1/charge/do/c-1; published: resubmit charge with edited input
agent fails charge #2 "HTTP 422" => Error; charge failed (failures 1, reason kept); due 30s; alert charge "step charge: HTTP 422"
ann undoes                   => Undone because "requested by ann: a test"; published: undo
agent completes charge #1 => Undoing; the undo is final; document step/charge/1/output; due 60s; request undo of charge #1 by 60s with 10
agent completes undo of charge #1 => Undone; charge undone (output kept); no longer due
