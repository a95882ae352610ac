# A child task was Processed, and an effect at another agent comes to light. It reports that. Its parent depends on it, so an operator
# cannot undo the child alone. If the parent asks for it, the effect at the other agent remains, until an operator has checked that.
workflow within 1h
  charge: agents visa and backup, within 20s, then undo, undo

submit for pack of p-1 => Pending; due 20s
wake => Processing; request charge #1 to visa by 20s
agent defers charge #1 for 10s "open", for certain => document step/charge/1/deferral; request charge #2 to backup by 20s
agent completes charge #2 => Processed; charge completed (output kept); no longer due; report to pack of p-1: Processed with null
agent completes charge #1 => Error; document step/charge/1/output; due 30s; alert charge "step charge: attempt 1 ran at visa too: revert one effect at its service and `resubmit --did-not-run`"; report to pack of p-1: in Error "step charge: attempt 1 ran at visa too", was Processed
ann undoes => refused: the task ran for step pack of task p-1, which depends on it: undo that task instead
parent requests undo => Undoing because "requested by task p-1"; due 60s; request undo of charge #1 to visa by 60s
agent completes undo of charge #1 => document undo/charge/1/output; request undo of charge #2 to backup by 60s
parent requests undo => ignored: NothingReady
