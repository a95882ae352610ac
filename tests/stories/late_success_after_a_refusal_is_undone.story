# A request was delivered twice. One agent's call fails, and the other agent's call completes. The
# step is undone.
workflow within 10m
  check:   undo
  reserve: after check, within 60s, then undo, undo

# While the task is undone.
submit                       => Pending; due 30s
wake                         => Processing; request check #1 by 60s
agent completes check #1     => check completed (output kept); request reserve #1 by 60s
agent fails reserve #1 "HTTP 401"
                             => Undoing because "step reserve: HTTP 401"; reserve failed (failures
                                1, reason kept); request undo of check #1 by 60s
agent completes reserve #1   => reserve failed (may have run); request undo of reserve #1 by 60s
agent completes undo of check #1
                             => check undone (output kept)
agent completes undo of reserve #1
                             => Undone; reserve undone (output kept); no longer due

# After the task was undone: an operator is alerted and resubmits the undo.
submit                       => Pending; due 30s
wake                         => Processing; request check #1 by 60s
agent completes check #1     => check completed (output kept); request reserve #1 by 60s
agent fails reserve #1 "HTTP 401"
                             => Undoing because "step reserve: HTTP 401"; reserve failed (failures
                                1, reason kept); request undo of check #1 by 60s
agent completes undo of check #1
                             => Undone; check undone (output kept); no longer due
agent completes reserve #1   => Error; the undo is final; reserve failed (may have run); due 30s; alert: left to undo
                                reserve "step reserve took effect after the task was undone"
ann resubmits                => Undoing; due 60s; request undo of reserve #1 by 60s; published: resubmit
agent completes undo of reserve #1
                             => Undone; reserve undone (output kept); no longer due

# The call was cut; the undo waits for it.
submit                       => Pending; due 30s
wake                         => Processing; request check #1 by 60s
agent completes check #1     => check completed (output kept); request reserve #1 by 60s
agent fails reserve #1 "HTTP 401"
                             => Undoing because "step reserve: HTTP 401"; reserve failed (failures
                                1, reason kept); request undo of check #1 by 60s
agent completes undo of check #1
                             => Undone; check undone (output kept); no longer due
agent cuts reserve #1 "the call took longer than 60s"
                             => Error; the undo is final; reserve failed (may have run, call may be in progress until 62s); due
                                30s; alert: left to undo reserve "step reserve took effect after the
                                task was undone"
ann resubmits                => Undoing; task by 662s; due 92s; published: resubmit
clock +62s
wake                         => request undo of reserve #1 by 122s
