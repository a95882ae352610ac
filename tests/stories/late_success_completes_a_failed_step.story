# An alert is outdated: the failed step has run after all, by another delivery of its request. So there is nothing to complete or to
# skip by hand, and the task goes on with the output.
workflow within 10m
  charge: within 60s, then alert, undo
  ship:   after charge, body ${ steps.charge.output }

submit                       => Pending; due 30s
wake                         => Processing; request charge #1 by 60s
agent fails charge #1 "HTTP 401" => Error; charge failed (failures 1, reason kept); alert charge "step charge: HTTP 401"
agent completes charge #1    => charge completed (may have run, output kept)
ann completes charge         => refused: step charge is completed
ann skips charge             => refused: step charge is completed
ann resubmits                => Processing; due 60s; request ship #1 by 60s with null; published: resubmit
agent completes ship #1      => Processed; ship completed (output kept); no longer due
