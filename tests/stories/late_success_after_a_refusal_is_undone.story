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
agent completes reserve #1 => reserve completed (may have run, output kept); request undo of reserve #1 by 60s
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
agent completes reserve #1 => Undoing; the undo is final; reserve completed (may have run, output kept); due 60s; request undo of reserve #1 by 60s
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
agent cuts reserve #1 "the call took longer than 60s" => Undoing; task by 662s; the undo is final; reserve failed (may have run, call may be in progress until 62s); due 92s; wake scheduler in 62s
clock +62s
wake                         => request undo of reserve #1 by 122s
