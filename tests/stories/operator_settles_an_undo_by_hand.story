# While a task is undone, the operator's commands are about undos: skipped, completed by hand,
# resubmitted, also before they started.
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
ann skips charge             => refused: step charge is not to be undone
ann completes check with "by hand"
                             => check undone (output kept); told: complete check
clock +22s
sweep                        => undo of reserve waiting until 82s (failures 1, may have run, reason
                                kept); unlocked; due 112s; wake scheduler in 60s
ann resubmits reserve        => undo of reserve running (failures 0); due 42s;
                                request undo of reserve #2 by 42s; told: resubmit reserve
agent completes undo of reserve #2
                             => Undone; reserve undone (output kept); no longer due

submit                       => Pending; due 52s
wake                         => Processing; request check #1 by 82s
agent completes check #1     => check completed (output kept); request reserve #1 by 82s
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 82s
agent fails charge #1 "card declined"
                             => Undoing because "step charge: card declined";
                                charge failed (failures 1, reason kept); due 42s;
                                request undo of reserve #1 by 42s
clock +22s
sweep                        => undo of reserve waiting until 104s (failures 1, may have run, reason
                                kept); unlocked; due 134s; wake scheduler in 60s
ann completes reserve because "released on the phone"
                             => reserve undone (output kept); due 104s;
                                request undo of check #1 by 104s; told: complete reserve
ann skips check              => refused: step check is running
agent completes undo of check #1
                             => Undone; check undone (output kept); no longer due

# The last of them.
submit                       => Pending; due 74s
wake                         => Processing; request check #1 by 104s
agent completes check #1     => check completed (output kept); request reserve #1 by 104s
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 104s
agent fails charge #1 "card declined"
                             => Undoing because "step charge: card declined";
                                charge failed (failures 1, reason kept); due 64s;
                                request undo of reserve #1 by 64s
ann skips check because "it has gone"
                             => undo of check skipped; told: skip check
clock +22s
sweep                        => undo of reserve waiting until 126s (failures 1, may have run, reason
                                kept); unlocked; due 156s; wake scheduler in 60s
ann skips reserve because "it has gone too"
                             => Undone; undo of reserve skipped; no longer due; told: skip reserve

submit                       => Pending; due 96s
wake                         => Processing; request check #1 by 126s
agent completes check #1     => check completed (output kept); request reserve #1 by 126s
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 126s
agent fails charge #1 "card declined"
                             => Undoing because "step charge: card declined";
                                charge failed (failures 1, reason kept); due 86s;
                                request undo of reserve #1 by 86s
agent fails undo of reserve #1 "gone"
                             => Error; undo of reserve failed (failures 1, reason kept); due 96s;
                                alert: left to undo check, reserve "undo of step reserve: gone"
ann completes reserve because "released on the phone"
                             => Undoing; reserve undone (output kept); due 126s;
                                request undo of check #1 by 126s; told: complete reserve
clock +1s
agent fails undo of check #1 "gone"
                             => Error; undo of check failed (failures 1, reason kept); due 97s;
                                alert: left to undo check "undo of step check: gone"
ann completes                => Undone; task by 3667s; check undone (output kept); no longer due;
                                told: complete check

submit                       => Pending; due 97s
wake                         => Processing; request check #1 by 127s
agent completes check #1     => check completed (output kept); request reserve #1 by 127s
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 127s
agent fails charge #1 "card declined"
                             => Undoing because "step charge: card declined";
                                charge failed (failures 1, reason kept); due 87s;
                                request undo of reserve #1 by 87s
ann completes check          => check undone (output kept); told: complete check
clock +22s
sweep                        => undo of reserve waiting until 149s (failures 1, may have run, reason
                                kept); unlocked; due 179s; wake scheduler in 60s
ann completes reserve        => Undone; reserve undone (output kept); no longer due;
                                told: complete reserve

submit                       => Pending; due 119s
wake                         => Processing; request check #1 by 149s
agent completes check #1     => check completed (output kept); request reserve #1 by 149s
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 149s
agent fails charge #1 "card declined"
                             => Undoing because "step charge: card declined";
                                charge failed (failures 1, reason kept); due 109s;
                                request undo of reserve #1 by 109s
ann skips check              => undo of check skipped; told: skip check
agent fails undo of reserve #1 "gone"
                             => Error; undo of reserve failed (failures 1, reason kept); due 119s;
                                alert: left to undo reserve "undo of step reserve: gone"
ann skips                    => Undone; undo of reserve skipped; no longer due; told: skip reserve
