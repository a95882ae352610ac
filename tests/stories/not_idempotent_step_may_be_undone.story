# With a policy that says undo, the unknown outcome is undone.
workflow within 10m
  reserve: undo
  charge:  after reserve, within 20s, not idempotent, then undo, undo (attempts 2)

submit                       => Pending; due 20s
wake                         => Processing; request reserve #1 by 60s
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 20s
clock +22s
sweep                        => Undoing because "step charge: no reply by complete-by, attempt 1";
                                task by 622s; charge failed (failures 1, may have run, reason kept);
                                unlocked; due 52s; wake scheduler
wake                         => request undo of charge #1 by 82s
# The undo itself can always be repeated.
clock +62s
sweep                        => undo of charge waiting (failures 1, may have run, reason kept);
                                unlocked; due 114s; wake scheduler
wake                         => request undo of charge #2 by 144s
agent completes undo of charge #2
                             => charge undone (output kept); request undo of reserve #1 by 144s
agent completes undo of reserve #1
                             => Undone; reserve undone (output kept); no longer due
