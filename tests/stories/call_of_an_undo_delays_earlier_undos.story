# A step is undone only when no call of the undo of a later step can be in progress. The state Undone
# waits for that too.
workflow within 10m
  check:   undo
  reserve: after check, undo (within 20s, backoff from 1s)
  charge:  after reserve, then undo

# The first attempt at the undo gets no reply: a call of it may last until 42s.
submit                       => Pending; due 30s
wake                         => Processing; request check #1 by 60s
agent completes check #1     => check completed (output kept); request reserve #1 by 60s
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 60s
agent fails charge #1 "card declined"
                             => Undoing because "step charge: card declined"; charge failed
                                (failures 1, reason kept); due 20s; request undo of reserve #1 by
                                20s
clock +22s
sweep                        => undo of reserve waiting until 23s (failures 1, may have run, call
                                may be in progress until 42s, reason kept); unlocked; due 53s; wake scheduler
                                in 1s
clock +1s
wake                         => due 43s; request undo of reserve #2 by 43s
agent completes undo of reserve #2
                             => task by 642s; reserve undone (output kept); wake scheduler in 19s
clock +19s
wake                         => request undo of check #1 by 102s
agent completes undo of check #1
                             => Undone; check undone (output kept); no longer due

# The operator skips the first undo. The call of the second one, which is the last, was cut.
submit                       => Pending; due 72s
wake                         => Processing; request check #1 by 102s
agent completes check #1     => check completed (output kept); request reserve #1 by 102s
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 102s
agent fails charge #1 "card declined"
                             => Undoing because "step charge: card declined"; charge failed
                                (failures 1, reason kept); due 62s; request undo of reserve #1 by
                                62s
ann skips check              => undo of check skipped; published: skip check
agent cuts undo of reserve #1 "the call was cut"
                             => undo of reserve waiting until 43s (failures 1, may have run, call
                                may be in progress until 84s, reason kept); wake scheduler in 1s
clock +1s
wake                         => request undo of reserve #2 by 63s
agent completes undo of reserve #2
                             => task by 684s; reserve undone (output kept); wake scheduler in 41s
clock +41s
wake                         => Undone; no longer due

# The first attempt at the undo was deferred: an agent with another delivery of its request may make a
# call.
submit                       => Pending; due 114s
wake                         => Processing; request check #1 by 144s
agent completes check #1     => check completed (output kept); request reserve #1 by 144s
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 144s
agent fails charge #1 "card declined"
                             => Undoing because "step charge: card declined"; charge failed
                                (failures 1, reason kept); due 104s; request undo of reserve #1 by
                                104s
agent defers undo of reserve #1 for 1s "breaker open"
                             => undo of reserve waiting until 85s (reason kept); wake scheduler in
                                1s
clock +1s
wake                         => undo of reserve running (may have run, call may be in progress until 126s);
                                request undo of reserve #2 by 105s
agent completes undo of reserve #2
                             => task by 726s; reserve undone (output kept); wake scheduler in 41s
