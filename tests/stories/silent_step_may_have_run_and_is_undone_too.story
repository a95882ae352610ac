# A silent attempt has an unknown outcome. The step may have run, so it is undone as if it had.
timing   clock skew 2s, pickup within 30s
workflow within 10m
  reserve: within 30s, undo
  charge:  after reserve, within 20s, attempts 2, then undo, undo

submit                       => Pending; due 20s
wake                         => Processing; request reserve #1 by 30s
clock +1s
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 21s
clock +22s
sweep                        => charge waiting (failures 1, may have run, call may be in progress until 43s,
                                reason kept); unlocked; due 53s; wake scheduler
wake                         => due 43s; request charge #2 by 43s
clock +22s
sweep                        => Undoing because "step charge: no reply by complete-by, attempt 2";
                                task by 665s; charge failed (failures 2, call may be in progress until 65s,
                                reason kept); unlocked; due 95s; wake scheduler in 20s
clock +20s
wake                         => request undo of charge #1 by 125s
# Its agent replies after all, but too late: the reply changes nothing.
agent completes charge #2    => ignored: DuplicateReply
agent completes undo of charge #1
                             => charge undone (output kept); request undo of reserve #1 by 125s
agent completes undo of reserve #1
                             => Undone; reserve undone (output kept); no longer due
