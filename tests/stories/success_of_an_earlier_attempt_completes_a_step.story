# A reply arrives when the attempt has been given up, and the next one with the same key has begun. It completes the step: the
# service recognises the repeated call. The undo waits for that call, and reads the output.
timing   clock skew 2s, pickup within 30s
workflow within 10m
  charge: within 10s, backoff from 4s, undo (body ${ steps.charge.output })
  ship:   after charge, within 10s, then undo

# While the next attempt runs.
submit                       => Pending; due 10s
wake                         => Processing; request charge #1 by 10s
clock +12s
sweep                        => charge waiting until 16s (failures 1, may have run, call may be in progress until 22s, reason kept); unlocked; due 46s; wake scheduler in 4s
clock +4s
wake                         => due 26s; request charge #2 by 26s
agent completes charge #1 with {"id":1}
                             => charge completed (call may be in progress until 38s, output kept); request ship #1 by 26s
agent fails charge #2 "HTTP 409", may have run
                             => ignored: DuplicateReply
agent fails ship #1 "HTTP 402" => Undoing because "step ship: HTTP 402"; task by 638s; ship failed (failures 1, reason kept); wake scheduler in 22s
clock +24s
wake                         => request undo of charge #1 by 100s with {"id":1}

# While it waits.
submit                       => Pending; due 50s
wake                         => Processing; request charge #1 by 50s
clock +12s
sweep                        => charge waiting until 56s (failures 1, may have run, call may be in progress until 62s, reason kept); unlocked; due 86s; wake scheduler in 4s
clock +4s
wake                         => due 66s; request charge #2 by 66s
agent defers charge #2 for 20s "breaker open"
                             => charge waiting until 76s (reason kept); wake scheduler in 20s
agent completes charge #1 with {"id":1}
                             => charge completed (call may be in progress until 78s, output kept); request ship #1 by 66s
