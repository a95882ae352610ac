# The contradiction at the point of no return comes before any undo has begun.
workflow within 1h
  check:  undo
  charge: after check, agents visa and backup, within 20s, attempts 1, then undo, point of no return
  other:  after check, within 60s, then undo

submit                       => Pending; due 20s
wake                         => Processing; request check #1 by 60s
agent completes check #1     => check completed (output kept); request charge #1 to visa by 20s; request other #1 by 60s
agent defers charge #1 for 10s "breaker open", for certain => document step/charge/1/deferral; request charge #2 to backup by 20s
agent fails other #1 "no"    => Undoing because "step other: no"; other failed (failures 1, reason kept)
agent completes charge #1    => Error; charge running #2 (may have run); due 30s; alert: left to undo check "step charge: attempt 1 may have run at another agent"
agent fails charge #2 "no"   => charge failed (failures 1, reason kept)
ann completes check          => refused: the undo of step check cannot begin: the point of no return runs or has run
ann resubmits => charge failed; alert charge, other "not undone, past the point of no return charge: step other: no"; published: resubmit
ann undoes                   => refused: the task is past its point of no return, step charge
submit                       => Pending; due 20s
wake                         => Processing; request check #1 by 60s
agent completes check #1     => check completed (output kept); request charge #1 to visa by 20s; request other #1 by 60s
agent defers charge #1 for 10s "breaker open", for certain => document step/charge/1/deferral; request charge #2 to backup by 20s
agent fails charge #2 "no"   => Undoing because "step charge: no"; charge failed (failures 1, reason kept)
agent completes charge #1    => Error; charge failed (may have run); due 30s; alert: left to undo check "step charge: attempt 1 may have run at another agent"
agent completes other #1     => other completed (output kept)
ann resubmits => charge failed; alert charge "not undone, past the point of no return charge: step charge: no"; published: resubmit
