# Two refused steps without an undo take effect after the task is Undone. Each has its alert.
workflow within 10m
  mail: within 60s, then undo
  post: within 60s, then undo

submit                       => Pending; due 30s
wake                         => Processing; request mail #1 by 60s; request post #1 by 60s
agent fails post #1 "HTTP 401"
                             => Undoing because "step post: HTTP 401"; post failed (failures 1, reason kept)
agent fails mail #1 "HTTP 401"
                             => Undone; mail failed (failures 1, reason kept); no longer due
agent completes mail #1 => Error; the undo is final; mail completed (may have run, output kept); due 30s; alert: left to undo "step mail took effect after the task was undone"
alert sent                   => no longer due
agent completes post #1 => post completed (may have run, output kept); due 30s; alert: left to undo "step post took effect after the undo began; step mail took effect after the task was undone"
ann resubmits                => Undone; published: resubmit
