# A refusal says nothing of another delivery of the same request. The operator who states that the step did not run has seen no more
# than that refusal, so a later doubt about the same attempt is news.
workflow within 10m
  charge: within 60s, then alert, body ${ input.n }, undo (body ${ input.n })
  ship:   after charge, within 60s, then undo

submit with {"n":10}         => Pending; due 30s
wake                         => Processing; request charge #1 by 60s with 10
agent fails charge #1 "HTTP 422" => Error; charge failed (failures 1, reason kept); alert charge "step charge: HTTP 422"
ann resubmits charge with input {"n":5}, it did not run => Processing; charge running (failures 0); input {"n":5} kept; due 60s; request charge #2 by 60s with 5 under key o-1/charge/do/c-1; published: resubmit charge with edited input
agent completes charge #2    => charge completed (output kept); request ship #1 by 60s under key o-1/ship/do/c-1
agent cuts charge #1 "timeout" => Error; charge completed (call may be in progress until 62s); due 30s; alert charge "step charge: attempt 1 may have run with the input before its edit too: `undo` the task, or revert one effect at its service and `resubmit --did-not-run`"
agent cuts charge #1 "timeout" (redelivered) => ignored: StaleReply; again alert charge "step charge: attempt 1 may have run with the input before its edit too: `undo` the task, or revert one effect at its service and `resubmit --did-not-run`"
