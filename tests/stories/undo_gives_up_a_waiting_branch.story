# When the task is undone, a branch that waits for its next attempt is given up. It may have run, so
# it is undone.
workflow within 10m
  reserve: within 10s, backoff from 60s, undo
  charge:  within 60s, then undo

submit                       => Pending; due 10s
wake                         => Processing; request reserve #1 by 10s; request charge #1 by 60s
clock +12s
sweep                        => reserve waiting until 72s (failures 1, may have run, call may be in progress
                                until 22s, reason kept); unlocked; due 60s; wake scheduler in 60s
agent fails charge #1 "card declined"
                             => Undoing because "step charge: card declined"; task by 622s; reserve
                                failed; charge failed (failures 1, reason kept); due 52s; wake
                                scheduler in 10s
wake                         => ignored: NothingReady
clock +10s
wake                         => request undo of reserve #1 by 82s
agent completes undo of reserve #1
                             => Undone; reserve undone (output kept); no longer due
