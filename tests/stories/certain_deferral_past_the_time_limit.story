# A certain deferral arrives after the time limit of the step: no time is left for the next agent, so the step fails at once.
workflow within 1h
  charge: agents visa and backup, within 20s, gives up after 20s, then undo, undo

submit                       => Pending; due 20s
wake                         => Processing; request charge #1 to visa by 20s
clock +21s
agent defers charge #1 for 5s "breaker open", for certain => Undone because "step charge: has to wait 5s, past `give_up_after`: breaker open"; task by 3621s; charge failed (failures 1, reason kept); no longer due
