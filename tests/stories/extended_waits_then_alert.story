# When all attempts are used, an extended wait follows, and then as many attempts again. After the
# last extended wait the task stops in Error with an alert.
workflow within 10h
  charge: within 10s, attempts 2, backoff from 1s, extended wait 10m 2 times

submit reply_to shop         => Pending; due 10s
wake                         => Processing; request charge #1 by 10s
clock +12s
sweep                        => charge waiting until 13s (failures 1, may have run, call may be in progress
                                until 22s, reason kept); unlocked; due 43s; wake scheduler in 1s
clock +1s
wake                         => due 23s; request charge #2 by 23s
clock +12s
sweep                        => charge waiting until 625s (failures 2, call may be in progress until 35s,
                                reason kept); unlocked; due 655s; wake scheduler in 600s
clock +600s
wake                         => due 635s; request charge #3 by 635s
clock +12s
sweep                        => charge waiting until 638s (failures 3, call may be in progress until 647s,
                                reason kept); unlocked; due 668s; wake scheduler in 1s
clock +1s
wake                         => due 648s; request charge #4 by 648s
clock +12s
sweep                        => charge waiting until 1250s (failures 4, call may be in progress until 660s,
                                reason kept); unlocked; due 1280s; wake scheduler in 600s
clock +600s
wake                         => due 1260s; request charge #5 by 1260s
clock +12s
sweep                        => charge waiting until 1263s (failures 5, call may be in progress until 1272s,
                                reason kept); unlocked; due 1293s; wake scheduler in 1s
clock +1s
wake                         => due 1273s; request charge #6 by 1273s
clock +12s
sweep                        => Error; charge failed (failures 6, call may be in progress until 1285s, reason
                                kept); due 1305s; notification to shop: error "step charge: no reply by
                                complete-by, attempt 6"; alert charge "step charge: no reply by
                                complete-by, attempt 6"
