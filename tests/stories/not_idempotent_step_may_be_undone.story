# With `then undo`, a step of unknown outcome is undone.
workflow within 10m
  reserve: undo
  charge:  after reserve, within 20s, not idempotent, then undo, undo (attempts 2)

submit                       => Pending; due 20s
wake                         => Processing; request reserve #1 by 60s
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 20s
clock +22s
sweep                        => Undoing because "step charge: no reply by complete-by, attempt 1";
                                task by 642s; charge failed (failures 1, may have run, call may be in progress
                                until 42s, reason kept); unlocked; due 72s; wake scheduler in 20s
clock +20s
wake                         => request undo of charge #1 by 102s
# The undo itself can always be repeated.
clock +62s
sweep                        => undo of charge waiting (failures 1, may have run, call may be in progress
                                until 164s, reason kept); unlocked; due 134s; wake scheduler
wake                         => request undo of charge #2 by 164s
agent completes undo of charge #2
                             => task by 764s; charge undone (output kept); wake scheduler in 60s
clock +60s
wake                         => request undo of reserve #1 by 224s
agent completes undo of reserve #1
                             => Undone; reserve undone (output kept); no longer due
