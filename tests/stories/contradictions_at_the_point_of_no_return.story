# Agents that are tried in order contradict themselves at the point of no return, while the undo runs and after it.
workflow within 1h
  check:  undo
  charge: after check, agents visa and backup, within 20s, attempts 1, then undo, point of no return, undo

submit                       => Pending; due 20s
wake                         => Processing; request check #1 by 60s
agent completes check #1     => check completed (output kept); request charge #1 to visa by 20s
agent defers charge #1 for 10s "breaker open", for certain => document step/charge/1/deferral; request charge #2 to backup by 20s
agent fails charge #2 "HTTP 422" => Undoing because "step charge: HTTP 422"; charge failed (failures 1, reason kept); request undo of check #1 by 60s
agent completes charge #1 => Error; the undo is final; document step/charge/1/output; due 30s; alert: left to undo check, charge "step charge took effect after the undo began"
agent completes charge #1    => ignored: StaleReply
agent completes charge #2 => charge completed (may have run, output kept); alert: left to undo check, charge "step charge took effect after the undo began; step charge took effect after the undo began"
agent completes undo of check #1 => check undone (output kept)
ann resubmits => Undoing; due 60s; request undo of charge #1 to visa by 60s; published: resubmit
agent completes undo of charge #1 => document undo/charge/1/output; request undo of charge #2 to backup by 60s
agent completes charge #1 (redelivered) => ignored: StaleReply; again request undo of charge #2 to backup by 60s
submit                       => Pending; due 20s
wake                         => Processing; request check #1 by 60s
agent completes check #1     => check completed (output kept); request charge #1 to visa by 20s
agent defers charge #1 for 10s "breaker open", for certain => document step/charge/1/deferral; request charge #2 to backup by 20s
agent fails charge #2 "HTTP 422" => Undoing because "step charge: HTTP 422"; charge failed (failures 1, reason kept); request undo of check #1 by 60s
agent completes undo of check #1 => Undone; check undone (output kept); no longer due
agent cuts charge #1 "slow" => Error; the undo is final; charge failed (call may be in progress until 22s); due 30s; alert: left to undo charge "step charge took effect after the task was undone"
ann resubmits => Undoing; task by 3622s; due 52s; published: resubmit
agent completes charge #2 => Error; charge completed (may have run, output kept); due 30s; alert: left to undo charge "step charge took effect after the undo began"
agent completes charge #1 => document step/charge/1/output; alert: left to undo charge "step charge took effect after the undo began; step charge took effect after the undo began"
clock +100s
wake => ignored: NothingReady
agent completes charge #1    => ignored: StaleReply
ann resubmits => Undoing; task by 3700s; due 160s; request undo of charge #1 to visa by 160s; published: resubmit
agent completes undo of charge #1 => document undo/charge/1/output; request undo of charge #2 to backup by 160s
