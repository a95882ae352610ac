# A resubmit without a step's name restarts failed steps and steps that wait for their next attempt,
# but ends no wait. A resubmit with the name of a wait ends it.
timing   clock skew 2s, pickup within 30s
workflow within 30m
  rest:   wait 10m
  charge: within 20s
  ship:   after rest, within 20s

submit                       => Pending; due 20s
wake                         => Processing; rest waiting until 600s; request charge #1 by 20s; wake
                                scheduler in 600s
ann resubmits                => refused: no step failed or is waiting
agent fails charge #1 "card declined"
                             => Error; charge failed (failures 1, reason kept); due 30s; alert
                                charge "step charge: card declined"
ann resubmits                => Processing; charge running (failures 0); due 20s; request charge #2
                                by 20s; published: resubmit charge
ann resubmits rest           => rest completed; request ship #1 by 20s; published: resubmit rest
