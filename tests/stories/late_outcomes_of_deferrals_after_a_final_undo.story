# Deferred attempts that were given up take effect while the undo runs, and after it.
workflow within 2h
  check:   undo
  charge:  after check, within 60s, then undo, undo
  once:    after check, within 60s, not idempotent, then undo, undo
  notify:  after check, within 300s, then undo

submit => Pending; due 30s
wake                         => Processing; request check #1 by 60s
agent completes check #1     => check completed (output kept); request charge #1 by 60s; request once #1 by 60s; request notify #1 by 300s
agent defers charge #1 for 10m "busy", for certain => charge waiting until 600s (reason kept); wake scheduler in 600s
clock +70s
agent fails notify #1 "no"   => Undoing because "step notify: no"; task by 7322s; charge failed (may have run, call may be in progress until 122s); notify failed (failures 1, reason kept); wake scheduler in 52s
agent completes charge #1    => charge completed (output kept)
agent fails once #1 "HTTP 401" => once failed (failures 1, reason kept)
clock +60s
wake                         => request undo of charge #1 by 190s
agent completes once #1 => once completed (may have run, output kept); request undo of once #1 by 190s
agent completes undo of charge #1 => charge undone (output kept)
agent completes undo of once #1 => once undone (output kept); request undo of check #1 by 190s
agent completes undo of check #1 => Undone; check undone (output kept); no longer due
agent completes charge #1    => ignored: DuplicateReply
submit => Pending; due 160s
wake                         => Processing; request check #1 by 190s
agent completes check #1     => check completed (output kept); request charge #1 by 190s; request once #1 by 190s; request notify #1 by 430s
agent defers charge #1 for 10m "busy" => charge waiting until 730s (reason kept); wake scheduler in 600s
agent completes once #1      => once completed (output kept)
agent fails notify #1 "no"   => Undoing because "step notify: no"; charge running #1; notify failed (failures 1, reason kept); request undo of once #1 by 190s
ann completes charge         => refused: step charge has nothing to undo
ann skips charge             => refused: step charge has nothing to undo
agent fails charge #1 "401"  => charge failed (failures 1, reason kept)
agent completes undo of once #1 => once undone (output kept); request undo of check #1 by 190s
agent completes undo of check #1 => Undone; check undone (output kept); no longer due
agent completes charge #1 => Undoing; the undo is final; charge completed (may have run, output kept); due 190s; request undo of charge #1 by 190s
