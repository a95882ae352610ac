# A deferral may be longer than the longest delay of a message; and its wake may be lost.
workflow within 10h
  charge: within 20s

submit                       => Pending; due 20s
wake                         => Processing; request charge #1 by 20s
agent defers charge #1 for 1000s "breaker open"
                             => charge waiting until 1000s (reason kept)
agent defers charge #1 for 1000s "breaker open" (redelivered)
                             => ignored: StaleReply
clock +22s
sweep                        => due 1030s
clock +1010s
sweep                        => due 1062s; wake scheduler
wake                         => charge running (may have run, call may be in progress until 42s); due 1052s;
                                request charge #2 by 1052s
agent defers charge #2 for 10s "breaker open"
                             => charge waiting until 1042s (reason kept); wake scheduler in 10s
clock +42s
sweep                        => due 1104s; wake scheduler
wake                         => charge running (call may be in progress until 1074s); due 1094s; request
                                charge #3 by 1094s
agent completes charge #3    => Processed; charge completed (output kept); no longer due
