# During an undo, commands apply to undos: they can be skipped, completed and resubmitted, also before
# they have started.
workflow within 1h
  check:   undo
  reserve: after check, undo (within 20s, attempts 2, backoff from 60s)
  charge:  after reserve, then undo

submit                       => Pending; due 30s
wake                         => Processing; request check #1 by 60s
agent completes check #1     => check completed (output kept); request reserve #1 by 60s
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 60s
agent fails charge #1 "card declined"
                             => Undoing because "step charge: card declined";
                                charge failed (failures 1, reason kept); due 20s;
                                request undo of reserve #1 by 20s
ann skips charge             => refused: step charge has nothing to undo
ann completes check with "by hand"
                             => check undone (output kept); published: complete check
clock +22s
sweep                        => undo of reserve waiting until 82s (failures 1, may have run, call
                                may be in progress until 42s, reason kept); unlocked; due 112s; wake scheduler
                                in 60s
clock +20s
ann resubmits reserve        => undo of reserve running (failures 0); due 62s; request undo of
                                reserve #2 by 62s; published: resubmit reserve
agent completes undo of reserve #2
                             => Undone; reserve undone (output kept); no longer due

submit                       => Pending; due 72s
wake                         => Processing; request check #1 by 102s
agent completes check #1     => check completed (output kept); request reserve #1 by 102s
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 102s
agent fails charge #1 "card declined"
                             => Undoing because "step charge: card declined"; charge failed
                                (failures 1, reason kept); due 62s; request undo of reserve #1 by
                                62s
clock +22s
sweep                        => undo of reserve waiting until 124s (failures 1, may have run, call
                                may be in progress until 84s, reason kept); unlocked; due 154s; wake scheduler
                                in 60s
clock +20s
ann completes reserve because "released on the phone"
                             => reserve undone (output kept); due 144s; request undo of check #1 by
                                144s; published: complete reserve
ann skips check              => refused: step check is running
agent completes undo of check #1
                             => Undone; check undone (output kept); no longer due

# The last of them.
submit                       => Pending; due 114s
wake                         => Processing; request check #1 by 144s
agent completes check #1     => check completed (output kept); request reserve #1 by 144s
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 144s
agent fails charge #1 "card declined"
                             => Undoing because "step charge: card declined"; charge failed
                                (failures 1, reason kept); due 104s; request undo of reserve #1 by
                                104s
ann skips check because "it has gone"
                             => undo of check skipped; published: skip check
clock +22s
sweep                        => undo of reserve waiting until 166s (failures 1, may have run, call
                                may be in progress until 126s, reason kept); unlocked; due 196s; wake
                                scheduler in 60s
clock +20s
ann skips reserve because "it has gone too"
                             => Undone; undo of reserve skipped; no longer due; published: skip reserve

submit                       => Pending; due 156s
wake                         => Processing; request check #1 by 186s
agent completes check #1     => check completed (output kept); request reserve #1 by 186s
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 186s
agent fails charge #1 "card declined"
                             => Undoing because "step charge: card declined"; charge failed
                                (failures 1, reason kept); due 146s; request undo of reserve #1 by
                                146s
agent fails undo of reserve #1 "gone"
                             => Error; undo of reserve failed (failures 1, reason kept); due 156s;
                                alert: left to undo check, reserve "undo of step reserve: gone"
ann completes reserve because "released on the phone"
                             => Undoing; reserve undone (output kept); due 186s; request undo of
                                check #1 by 186s; published: complete reserve
clock +1s
agent fails undo of check #1 "gone"
                             => Error; undo of check failed (failures 1, reason kept); due 157s;
                                alert: left to undo check "undo of step check: gone"
ann completes                => Undone; task by 3727s; check undone (output kept); published: complete check

submit                       => Pending; due 157s
wake                         => Processing; request check #1 by 187s
agent completes check #1     => check completed (output kept); request reserve #1 by 187s
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 187s
agent fails charge #1 "card declined"
                             => Undoing because "step charge: card declined"; charge failed
                                (failures 1, reason kept); due 147s; request undo of reserve #1 by
                                147s
ann completes check          => check undone (output kept); published: complete check
clock +22s
sweep                        => undo of reserve waiting until 209s (failures 1, may have run, call
                                may be in progress until 169s, reason kept); unlocked; due 239s; wake
                                scheduler in 60s
clock +20s
ann completes reserve        => Undone; reserve undone (output kept); no longer due;
                                published: complete reserve

submit                       => Pending; due 199s
wake                         => Processing; request check #1 by 229s
agent completes check #1     => check completed (output kept); request reserve #1 by 229s
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 229s
agent fails charge #1 "card declined"
                             => Undoing because "step charge: card declined"; charge failed
                                (failures 1, reason kept); due 189s; request undo of reserve #1 by
                                189s
ann skips check              => undo of check skipped; published: skip check
agent fails undo of reserve #1 "gone"
                             => Error; undo of reserve failed (failures 1, reason kept); due 199s;
                                alert: left to undo reserve "undo of step reserve: gone"
ann skips                    => Undone; undo of reserve skipped; published: skip reserve
