# The agent before contradicts its refusal of the point of no return after the task is Undone, although nothing had to be
# undone. The undo is final. 
workflow within 1h
  charge: agents visa and backup, within 20s, attempts 1, then undo, point of no return

submit => Pending; due 20s
wake                         => Processing; request charge #1 to visa by 20s
agent defers charge #1 for 10s "breaker open", for certain => document step/charge/1/deferral; request charge #2 to backup by 20s
agent fails charge #2 "HTTP 422" => Undone because "step charge: HTTP 422"; charge failed (failures 1, reason kept); no longer due
agent completes charge #1 => Error; the undo is final; document step/charge/1/output; due 30s; alert: left to undo "step charge took effect after the task was undone"
ann resubmits                => Undone; published: resubmit
