# Between attempts there is a pause, which grows by the rate up to the maximum. The scheduler is woken
# when it is over; an earlier wake starts nothing.
workflow within 1h
  charge: within 10s, attempts 6, backoff from 4s rate 3 up to 20s

submit                       => Pending; due 10s
wake                         => Processing; request charge #1 by 10s
clock +12s
sweep                        => charge waiting until 16s (failures 1, may have run, call may be in progress
                                until 22s, reason kept); unlocked; due 46s; wake scheduler in 4s
clock +1s
wake                         => ignored: NothingReady
clock +3s
wake                         => due 26s; request charge #2 by 26s
clock +12s
sweep                        => charge waiting until 40s (failures 2, call may be in progress until 38s,
                                reason kept); unlocked; due 70s; wake scheduler in 12s
clock +9s
wake                         => ignored: NothingReady
clock +3s
wake                         => due 50s; request charge #3 by 50s
clock +12s
sweep                        => charge waiting until 72s (failures 3, call may be in progress until 62s,
                                reason kept); unlocked; due 102s; wake scheduler in 20s
clock +20s
wake                         => due 82s; request charge #4 by 82s
clock +12s
sweep                        => charge waiting until 104s (failures 4, call may be in progress until 94s,
                                reason kept); unlocked; due 134s; wake scheduler in 20s
clock +20s
wake                         => due 114s; request charge #5 by 114s
clock +12s
sweep                        => charge waiting until 136s (failures 5, call may be in progress until 126s,
                                reason kept); unlocked; due 166s; wake scheduler in 20s
clock +20s
wake                         => due 146s; request charge #6 by 146s
clock +12s
sweep                        => Error; charge failed (failures 6, call may be in progress until 158s, reason
                                kept); due 178s; alert charge "step charge: no reply by complete-by,
                                attempt 6"
