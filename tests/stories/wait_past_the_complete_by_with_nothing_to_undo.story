# As in wait_past_the_complete_by_of_the_task, but no agent has run the step, and the workflow undoes overdue tasks.
workflow within 4m, overdue undo
  charge: agents visa and backup, within 20s, undo

submit                       => Pending; due 20s
wake                         => Processing; request charge #1 to visa by 20s
agent defers charge #1 for 10m "busy", for certain
                             => document step/charge/1/deferral; request charge #2 to backup by 20s
agent defers charge #2 for 10m "busy", for certain
                             => Undone because "step charge: has to wait 10m, past the task's complete-by: busy";
                                charge failed (reason kept); no longer due
