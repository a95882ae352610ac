# The refused point of no return was skipped by hand, and items ran after it. While they are undone, it turns out that it has run.
workflow within 10m
  check: undo
  pay:   after check, within 60s, then alert, point of no return, undo
  ship:  after pay, for each ${ input.items } 1 at once, within 60s, then undo, undo

submit with {"items":["a","b"]} => Pending; due 30s
wake                         => Processing; request check #1 by 60s
agent completes check #1     => check completed (output kept); request pay #1 by 60s
agent fails pay #1 "HTTP 401" => Error; pay failed (failures 1, reason kept); alert pay "step pay: HTTP 401"
ann skips pay                => Processing; pay skipped; ship running, 2 items; due 60s; request ship[0] #1 by 60s; published: skip pay
agent completes ship[0] #1   => ship[0] completed (output kept); request ship[1] #1 by 60s
agent fails ship[1] #1 "no"  => Undoing because "step ship[1]: no"; ship[1] failed (failures 1, reason kept); request undo of ship[0] #1 by 60s
agent completes pay #1       => Error; the undo is final; pay skipped (may have run); due 30s; alert: left to undo check, pay, ship[0] "step pay took effect after the undo began"
agent completes ship[1] #1 => ship[1] completed (may have run, output kept); alert: left to undo check, pay, ship[0], ship[1] "step ship[1] took effect after the undo began; step pay took effect after the undo began"
ann resubmits                => Undoing; published: resubmit
agent completes undo of ship[0] #1 => ship[0] undone (output kept); request undo of ship[1] #1 by 60s
agent completes undo of ship[1] #1 => ship[1] undone (output kept); request undo of pay #1 by 60s
agent completes undo of pay #1 => pay undone (output kept); request undo of check #1 by 60s
agent completes undo of check #1 => Undone; check undone (output kept); no longer due
