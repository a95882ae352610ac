# As in extended_waits_then_alert, but the task is undone at the end.
workflow within 10h
  reserve: undo
  charge:  after reserve, within 10s, attempts 1, extended wait 5m 1 time, then undo

submit reply_to shop         => Pending; due 10s
wake                         => Processing; request reserve #1 by 60s
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 10s
clock +12s
sweep                        => charge waiting until 312s (failures 1, may have run, call may be in progress
                                until 22s, reason kept); unlocked; due 342s; wake scheduler in 300s
clock +300s
wake                         => due 322s; request charge #2 by 322s
clock +12s
sweep                        => Undoing because "step charge: no reply by complete-by, attempt 2";
                                task by 36334s; charge failed (failures 2, call may be in progress until 334s,
                                reason kept); unlocked; due 364s; wake scheduler in 10s
clock +10s
wake                         => request undo of reserve #1 by 394s
agent completes undo of reserve #1
                             => Undone; reserve undone (output kept); no longer due;
                                notification to shop: undone "step charge: no reply by complete-by,
                                attempt 2"
