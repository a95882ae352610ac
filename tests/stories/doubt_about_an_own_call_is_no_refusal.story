# A deferral with a doubt about its own call is never certain, whatever else it says: the step does not move on to the next agent.
workflow within 1h
  charge: agents visa and backup, within 20s, then undo, undo

submit                       => Pending; due 20s
wake                         => Processing; request charge #1 to visa by 20s
agent defers charge #1 for 5s "HTTP 503", for certain, its own call may have run => charge waiting until 5s (may have run, call may be in progress until 42s, reason kept); wake scheduler in 5s
