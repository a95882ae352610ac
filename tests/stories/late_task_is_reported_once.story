# A task that has not ended after `warn_after` is reported once, with what it waits for. It goes on.
workflow within 10m, late after 40s
  charge: within 60s, attempts 2, backoff from 1s
  ship:   after charge, within 60s

submit                       => Pending; due 30s
wake                         => Processing; request charge #1 by 60s
clock +45s
sweep                        => late; due 60s; alert: late charge
agent completes charge #1    => charge completed (output kept); request ship #1 by 105s
clock +70s
sweep                        => ship waiting (failures 1, may have run, call may be in progress until 167s, reason kept); unlocked; due 145s; wake scheduler
