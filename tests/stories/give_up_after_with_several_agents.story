# Steps whose agents have certainly not run them have nothing to undo when they give up.
workflow within 1h
  charge: agents visa and backup, within 20s, gives up after 60s, then undo, undo

submit                       => Pending; due 20s
wake                         => Processing; request charge #1 to visa by 20s
agent defers charge #1 for 60s "breaker open", for certain
                             => document step/charge/1/deferral; request charge #2 to backup by 20s
agent defers charge #2 for 60s "breaker open", for certain
                             => Undone because "step charge: has to wait 1m, past `give_up_after`: breaker
                                open"; charge failed (failures 1, reason kept); no longer due
