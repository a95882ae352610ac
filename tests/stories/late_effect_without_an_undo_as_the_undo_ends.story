# A step without an undo ran after all. At the same time the last call ends for which the undo waits.
workflow within 1h
  reserve: within 20s, undo
  charge:  within 20s, then undo

submit                       => Pending; due 20s
wake                         => Processing; request reserve #1 by 20s; request charge #1 by 20s
agent completes reserve #1   => reserve completed (output kept)
agent fails charge #1 "card declined"
                             => Undoing because "step charge: card declined"; charge failed (failures 1, reason
                                kept); request undo of reserve #1 by 60s
agent defers undo of reserve #1 for 10s "breaker open", may have run
                             => undo of reserve waiting until 10s (may have run, call may be in progress until
                                122s, reason kept); wake scheduler in 10s
agent completes undo of reserve #1
                             => task by 3722s; reserve undone (output kept); wake scheduler in 122s
clock +122s
agent completes charge #1    => Undone; charge completed (may have run, output kept); no longer due
