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
agent completes charge #1 => document step/charge/1/output
agent fails charge #2 "no" => Error; charge failed (failures 1, reason kept); due 30s; alert charge, other "not undone, past the point of no return charge: step other: no: revert one effect at its service and `resubmit --did-not-run`"
ann completes check => refused: step check is completed
ann resubmits => refused: an attempt at step charge may have taken effect: check the service, then complete the step, or resubmit it with the statement that it did not run
ann undoes                   => refused: the task is past its point of no return, step charge
submit                       => Pending; due 20s
wake                         => Processing; request check #1 by 60s
agent completes check #1     => check completed (output kept); request charge #1 to visa by 20s; request other #1 by 60s
agent defers charge #1 for 10s "breaker open", for certain => document step/charge/1/deferral; request charge #2 to backup by 20s
agent fails charge #2 "no"   => Undoing because "step charge: no"; charge failed (failures 1, reason kept)
agent completes charge #1 => Error; document step/charge/1/output; due 30s; alert charge "not undone, past the point of no return charge: step charge: no: revert one effect at its service and `resubmit --did-not-run`"
agent completes other #1     => other completed (output kept)
ann resubmits => refused: an attempt at step charge may have taken effect: check the service, then complete the step, or resubmit it with the statement that it did not run
