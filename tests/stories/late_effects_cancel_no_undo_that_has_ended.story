# Two refused steps take effect after the task is Undone, although nothing had to be undone: first another
# step, then the point of no return. Nothing starts: the undo of the task is final.
workflow within 10m
  pay:  within 60s, then undo, point of no return
  mail: within 60s, then undo
  ship: after pay

submit                       => Pending; due 30s
wake                         => Processing; request pay #1 by 60s; request mail #1 by 60s
agent fails pay #1 "HTTP 401"
                             => Undoing because "step pay: HTTP 401"; pay failed (failures 1, reason kept)
agent fails mail #1 "HTTP 401"
                             => Undone; mail failed (failures 1, reason kept); no longer due
agent completes mail #1 => Error; the undo is final; mail completed (may have run, output kept); due 30s; alert: left to undo "step mail took effect after the task was undone"
agent completes pay #1 => pay completed (may have run, output kept); alert: left to undo "step pay took effect after the undo began; step mail took effect after the task was undone"
ann resubmits                => Undone; published: resubmit
