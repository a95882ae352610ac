# A step that is not idempotent and may have run is not retried when its service is available again.
workflow within 10m
  charge:  within 20s, not idempotent

submit                       => Pending; due 20s
wake                         => Processing; request charge #1 by 20s
agent defers charge #1 for 10s "breaker open"
                             => charge waiting until 10s (reason kept); wake scheduler in 10s
clock +10s
wake                         => request charge #2 by 30s
agent defers charge #2 for 10s "breaker open", may have run
                             => Error; charge failed (failures 1, may have run, call may be in progress until
                                52s, reason kept); due 40s; alert charge "step charge: breaker open"
