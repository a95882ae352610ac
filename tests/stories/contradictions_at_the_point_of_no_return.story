# Agents that are tried in order contradict themselves at the point of no return, while the undo runs and after it.
workflow within 1h
  check:  undo
  charge: after check, agents visa and backup, within 20s, attempts 1, then undo, point of no return, undo

submit                       => Pending; due 20s
wake                         => Processing; request check #1 by 60s
agent completes check #1     => check completed (output kept); request charge #1 to visa by 20s
agent defers charge #1 for 10s "breaker open", for certain => document step/charge/1/deferral; request charge #2 to backup by 20s
agent fails charge #2 "HTTP 422" => Undoing because "step charge: HTTP 422"; charge failed (failures 1, reason kept); request undo of check #1 by 60s
agent completes charge #1    => Error; the undo is final; charge failed (may have run); due 30s; alert: left to undo check, charge "step charge: the undo goes to backup, but attempt 1 may have run at another agent"
agent completes charge #1    => ignored: StaleReply
agent completes charge #2    => ignored: DuplicateReply
agent completes undo of check #1 => check undone (output kept)
ann resubmits => Undoing; charge failed; due 60s; request undo of charge #1 to backup by 60s; published: resubmit
agent completes undo of charge #1 => Undone; charge undone (output kept); no longer due
agent completes charge #1 (redelivered)   => ignored: StaleReply
submit                       => Pending; due 20s
wake                         => Processing; request check #1 by 60s
agent completes check #1     => check completed (output kept); request charge #1 to visa by 20s
agent defers charge #1 for 10s "breaker open", for certain => document step/charge/1/deferral; request charge #2 to backup by 20s
agent fails charge #2 "HTTP 422" => Undoing because "step charge: HTTP 422"; charge failed (failures 1, reason kept); request undo of check #1 by 60s
agent completes undo of check #1 => Undone; check undone (output kept); no longer due
agent cuts charge #1 "slow"    => Error; the undo is final; charge failed (may have run, call may be in progress until 22s); due 30s; alert: left to undo charge "step charge: the undo goes to backup, but attempt 1 may have run at another agent"
ann resubmits => Undoing; task by 3622s; charge failed; due 52s; published: resubmit
agent completes charge #2    => ignored: DuplicateReply
agent completes charge #1    => Error; charge failed; due 30s; alert: left to undo charge "step charge: the undo goes to backup, but attempt 1 may have run at another agent"
clock +100s
wake                         => ignored: Ended
agent completes charge #1    => ignored: StaleReply
ann resubmits => Undoing; task by 3700s; charge failed; due 160s; request undo of charge #1 to backup by 160s; published: resubmit
agent completes undo of charge #1 => Undone; charge undone (output kept); no longer due
