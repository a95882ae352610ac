# The point of no return was deferred when the undo started, and another delivery of its request may
# still pass it. A concurrent wait continues until the undo cannot be abandoned any more.
workflow within 2h
  pay:    within 60s, point of no return
  cool:   wait 30m
  notify: within 60s, attempts 1, then undo
  ship:   after pay and cool

submit                       => Pending; due 30s
wake                         => Processing; cool waiting until 1800s; request pay #1 by 60s; request
                                notify #1 by 60s
agent defers pay #1 for 60s "breaker open"
                             => pay waiting until 60s (reason kept); wake scheduler in 60s
agent fails notify #1 "no address"
                             => Undoing because "step notify: no address"; pay running #1; notify
                                failed (failures 1, reason kept)
agent completes pay #1       => Error; pay completed (output kept); alert notify "not undone, past
                                the point of no return pay: step notify: no address"
ann skips notify             => Processing; notify skipped; due 1830s; published: skip notify

submit                       => Pending; due 30s
wake                         => Processing; cool waiting until 1800s; request pay #1 by 60s; request
                                notify #1 by 60s
agent defers pay #1 for 60s "breaker open"
                             => pay waiting until 60s (reason kept); wake scheduler in 60s
agent fails notify #1 "no address"
                             => Undoing because "step notify: no address"; pay running #1; notify
                                failed (failures 1, reason kept)
agent fails pay #1 "card declined"
                             => Undone; pay failed (failures 1, reason kept); cool skipped; no
                                longer due
