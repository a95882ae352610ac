# A queue cannot delay a message longer than 15 minutes. The supervisor finds a longer wait when it is
# over and wakes the scheduler.
workflow within 10h
  charge:  within 10s, attempts 1, extended wait 16m 1 time
  invoice: within 10s, attempts 1, extended wait 15m 1 time

submit                       => Pending; due 10s
wake                         => Processing; request charge #1 by 10s; request invoice #1 by 10s
clock +12s
sweep                        => charge waiting until 972s (failures 1, may have run, call may be in progress
                                until 22s, reason kept); invoice waiting until 912s (failures 1, may
                                have run, call may be in progress until 22s, reason kept); unlocked; due 942s;
                                wake scheduler in 900s
clock +900s
wake                         => due 922s; request invoice #2 by 922s
agent completes invoice #2   => invoice completed (output kept)
clock +32s
sweep                        => due 1002s
clock +60s
sweep                        => due 1034s; wake scheduler
wake                         => due 1014s; request charge #2 by 1014s
agent completes charge #2    => Processed; charge completed (output kept); no longer due
