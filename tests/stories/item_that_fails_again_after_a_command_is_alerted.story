# An operator retries one of two failed items, and it fails again: the operator is told by an alert.
workflow within 10m
  ship: for each ${ input } 2 at once

submit with [1,2]            => Pending; due 30s
wake                         => Processing; ship running, 2 items; request ship[0] #1 by 60s; request ship[1] #1
                                by 60s
agent fails ship[0] #1 "no"  => Error; ship[0] failed (failures 1, reason kept); alert ship[0] "step ship[0]:
                                no"
agent fails ship[1] #1 "no"  => ship[1] failed (failures 1, reason kept)
alert sent                   => no longer due
clock +1m
ann resubmits ship[0]        => task by 660s; ship[0] running (failures 0); due 120s; request ship[0] #2 by
                                120s; published: resubmit ship[0]
agent fails ship[0] #2 "no"  => ship[0] failed (failures 1, reason kept); due 90s; alert ship[0], ship[1] "step
                                ship[0]: no; step ship[0]: no"
