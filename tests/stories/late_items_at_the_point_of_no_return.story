# Items at the point of no return take effect after their refusals, while the undo runs and after it.
workflow within 10m
  check: undo
  pay:   after check, for each ${ input.items } 2 at once, within 60s, then undo, point of no return, undo

submit with {"items":["a","b","c"]} => Pending; due 30s
wake                         => Processing; request check #1 by 60s
agent completes check #1     => check completed (output kept); pay running, 3 items; request pay[0] #1 by 60s; request pay[1] #1 by 60s
agent fails pay[0] #1 "HTTP 401" => Undoing because "step pay[0]: HTTP 401"; pay[0] failed (failures 1, reason kept)
agent completes pay[0] #1 => Error; pay[0] completed (may have run, output kept); alert "not undone, past the point of no return pay: step pay[0]: HTTP 401"
agent fails pay[1] #1 "HTTP 401"
                             => pay[1] failed (failures 1, reason kept); alert pay[1] "not undone, past the
                                point of no return pay: step pay[1]: HTTP 401; not undone, past the point of no
                                return pay: step p…"
submit with {"items":["a","b","c"]} => Pending; due 30s
wake                         => Processing; request check #1 by 60s
agent completes check #1     => check completed (output kept); pay running, 3 items; request pay[0] #1 by 60s; request pay[1] #1 by 60s
agent fails pay[0] #1 "HTTP 401" => Undoing because "step pay[0]: HTTP 401"; pay[0] failed (failures 1, reason kept)
agent fails pay[1] #1 "HTTP 401" => pay[1] failed (failures 1, reason kept); request undo of check #1 by 60s
agent completes pay[0] #1 => Error; the undo is final; pay[0] completed (may have run, output kept); alert: left to undo check, pay[0] "step pay[0] took effect after the undo began"
agent completes pay[0] #1    => ignored: DuplicateReply
agent completes pay[1] #1 => pay[1] completed (may have run, output kept); alert: left to undo check, pay[0], pay[1] "step pay[1] took effect after the undo began; step pay[0] took effect after the undo began"
agent completes undo of check #1 => check undone (output kept)
ann resubmits                => Undoing; due 60s; request undo of pay[0] #1 by 60s; request undo of pay[1] #1 by 60s; published: resubmit
agent completes undo of pay[0] #1 => pay[0] undone (output kept)
agent completes undo of pay[1] #1 => Undone; pay[1] undone (output kept); no longer due
submit with {"items":["a","b","c"]} => Pending; due 30s
wake                         => Processing; request check #1 by 60s
agent completes check #1     => check completed (output kept); pay running, 3 items; request pay[0] #1 by 60s; request pay[1] #1 by 60s
agent fails pay[0] #1 "HTTP 401" => Undoing because "step pay[0]: HTTP 401"; pay[0] failed (failures 1, reason kept)
agent fails pay[1] #1 "HTTP 401" => pay[1] failed (failures 1, reason kept); request undo of check #1 by 60s
agent completes undo of check #1 => Undone; check undone (output kept); no longer due
agent completes pay[1] #1 => Error; the undo is final; pay[1] completed (may have run, output kept); due 30s; alert: left to undo pay[1] "step pay[1] took effect after the task was undone"
ann resubmits                => Undoing; due 60s; request undo of pay[1] #1 by 60s; published: resubmit
agent completes pay[0] #1 => Error; pay[0] completed (may have run, output kept); due 30s; alert: left to undo pay[0], pay[1] "step pay[0] took effect after the undo began"
agent completes undo of pay[1] #1 => pay[1] undone (output kept)
ann resubmits                => Undoing; due 60s; request undo of pay[0] #1 by 60s; published: resubmit
agent completes undo of pay[0] #1 => Undone; pay[0] undone (output kept); no longer due
agent completes pay[0] #1 (redelivered)   => ignored: DuplicateReply
