# An operator who resubmits whatever failed or waits for its next attempt cuts no wait short; one who
# names a wait does.
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
                                by 20s; told: resubmit charge
ann resubmits rest           => rest completed; request ship #1 by 20s; told: resubmit rest
