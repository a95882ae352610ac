# A step without an undo takes effect late: while the undo runs, in Error, and after it.
workflow within 10m
  check: undo
  mail:  within 60s, then undo
  reserve: within 60s, then undo, undo

submit => Pending; due 30s
wake                         => Processing; request check #1 by 60s; request mail #1 by 60s; request reserve #1 by 60s
agent completes check #1     => check completed (output kept)
agent fails mail #1 "401"    => Undoing because "step mail: 401"; mail failed (failures 1, reason kept); request undo of check #1 by 60s
agent fails reserve #1 "401" => reserve failed (failures 1, reason kept)
agent completes mail #1 => mail completed (may have run, output kept)
agent completes undo of check #1 => Undone; check undone (output kept); no longer due
agent completes mail #1      => ignored: DuplicateReply
submit => Pending; due 30s
wake                         => Processing; request check #1 by 60s; request mail #1 by 60s; request reserve #1 by 60s
agent completes check #1     => check completed (output kept)
agent fails mail #1 "401"    => Undoing because "step mail: 401"; mail failed (failures 1, reason kept); request undo of check #1 by 60s
agent fails reserve #1 "401" => reserve failed (failures 1, reason kept)
agent fails undo of check #1 "gone" => Error; undo of check failed (failures 1, reason kept); alert: left to undo check "undo of step check: gone"
agent completes reserve #1 => reserve completed (may have run, output kept); alert: left to undo check, reserve "step reserve took effect after the undo began; undo of step check: gone"
agent completes mail #1 => mail completed (may have run, output kept); alert: left to undo check, reserve "step mail took effect after the undo began; step reserve took effect after the undo began; undo of step check: gone"
ann resubmits                => Undoing; undo of check running (failures 0); due 60s; request undo of check #2 by 60s; request undo of reserve #1 by 60s; published: resubmit check
agent completes undo of check #2 => check undone (output kept)
agent completes undo of check #1 => ignored: StaleReply
agent completes undo of reserve #1 => Undone; reserve undone (output kept); no longer due
submit => Pending; due 30s
wake                         => Processing; request check #1 by 60s; request mail #1 by 60s; request reserve #1 by 60s
agent completes check #1     => check completed (output kept)
agent fails reserve #1 "401" => Undoing because "step reserve: 401"; reserve failed (failures 1, reason kept); request undo of check #1 by 60s
agent fails mail #1 "401"    => mail failed (failures 1, reason kept)
agent completes undo of check #1 => Undone; check undone (output kept); no longer due
agent completes reserve #1 => Undoing; the undo is final; reserve completed (may have run, output kept); due 60s; request undo of reserve #1 by 60s
agent completes mail #1 => mail completed (may have run, output kept)
agent completes undo of reserve #1 => Undone; reserve undone (output kept); no longer due
