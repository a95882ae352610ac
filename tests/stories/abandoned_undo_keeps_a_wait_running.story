# While the point of no return runs, the undo may be abandoned. In that case a wait is unchanged, and
# the step after it does not start early.
timing   clock skew 2s, pickup within 30s
workflow within 30m
  rest:   wait 10m
  ship:   after rest, within 20s
  pay:    within 20s, point of no return
  notify: within 20s, then undo

submit                       => Pending; due 20s
wake                         => Processing; rest waiting until 600s; request pay #1 by 20s; request
                                notify #1 by 20s; wake scheduler in 600s
agent fails notify #1 "no address"
                             => Undoing because "step notify: no address"; notify failed (failures
                                1, reason kept)
agent completes pay #1       => Error; pay completed (output kept); due 30s; alert notify "not
                                undone, past the point of no return pay: step notify: no address"
ann skips notify             => Processing; notify skipped; due 630s; published: skip notify
clock +600s
wake                         => rest completed; due 620s; request ship #1 by 620s
agent completes ship #1      => Processed; ship completed (output kept); no longer due

# The point of no return was not passed, so the wait is given up.
submit                       => Pending; due 620s
wake                         => Processing; rest waiting until 1200s; request pay #1 by 620s;
                                request notify #1 by 620s; wake scheduler in 600s
agent fails notify #1 "no address"
                             => Undoing because "step notify: no address"; notify failed (failures
                                1, reason kept)
agent fails pay #1 "card declined"
                             => Undone; rest skipped; pay failed (failures 1, reason kept); no
                                longer due
