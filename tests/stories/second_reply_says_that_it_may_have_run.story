# The other delivery of a refused request reports that it may have run. It shows nothing new.
workflow within 10m
  check:   undo
  reserve: after check, within 60s, then undo, undo

submit => Pending; due 30s
wake                         => Processing; request check #1 by 60s
agent completes check #1     => check completed (output kept); request reserve #1 by 60s
agent fails reserve #1 "HTTP 401" => Undoing because "step reserve: HTTP 401"; reserve failed (failures 1, reason kept); request undo of check #1 by 60s
agent fails reserve #1 "HTTP 302", may have run => ignored: DuplicateReply
agent completes undo of check #1 => Undone; check undone (output kept); no longer due
agent fails reserve #1 "HTTP 302", may have run => ignored: DuplicateReply
