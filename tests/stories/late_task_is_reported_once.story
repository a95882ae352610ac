# A task that has not ended after `warn_after` is reported once, with what it waits for. It goes on.
workflow within 10m, late after 40s
  charge: within 60s, attempts 2, backoff from 1s
  ship:   after charge, within 60s

submit                       => Pending; due 30s
wake                         => Processing; due 40s; request charge #1 by 60s
clock +45s
sweep                        => late; due 60s; alert: late charge
agent completes charge #1    => charge completed (output kept); request ship #1 by 105s
clock +70s
sweep                        => ship failed
