# As in wait_past_the_complete_by_of_the_task, but the workflow undoes overdue tasks.
workflow within 10m, overdue undo
  reserve: undo
  charge:  after reserve, agents visa and backup, within 20s, undo

submit                       => Pending; due 20s
wake                         => Processing; request reserve #1 by 60s
agent completes reserve #1   => reserve completed (output kept); request charge #1 to visa by 20s
agent defers charge #1 for 10m "busy", for certain
                             => document step/charge/1/deferral; request charge #2 to backup by 20s
agent defers charge #2 for 10m "busy"
                             => Undoing because "step charge: has to wait 10m, past the task's complete-by:
                                busy"; document step/charge/2/deferral
clock +22s
sweep                        => task by 642s; charge failed (failures 1, may have run, call may be in progress
                                until 42s, reason kept); unlocked; due 72s; wake scheduler in 20s
clock +20s
wake                         => request undo of charge #1 to backup by 102s
agent defers undo of charge #1 for 11m "busy"
                             => Error; undo of charge waiting until 702s (reason kept); alert: left to undo
                                reserve, charge "undo of step charge: has to wait 11m, past the task's
                                complete-by: busy"
