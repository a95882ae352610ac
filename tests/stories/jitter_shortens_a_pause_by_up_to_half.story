# Tasks that failed at the same time are not retried at the same time: jitter shortens a pause by up
# to half. The jitter is deterministic, so a repeated decision gives the same pause.
workflow within 1h
  charge: within 10s, attempts 9, backoff from 10s rate 1 up to 10s with jitter

submit                       => Pending; due 10s
wake                         => Processing; request charge #1 by 10s
clock +12s
sweep                        => charge waiting until 21.065s (failures 1, may have run, call may
                                be in progress until 22s, reason kept); unlocked; due 51.065s; wake scheduler
                                in 9.065s
clock +10s
wake                         => due 32s; request charge #2 by 32s
clock +12s
sweep                        => charge waiting until 43.886s (failures 2, call may be in progress until 44s,
                                reason kept); unlocked; due 73.886s; wake scheduler in 9.886s
clock +10s
wake                         => due 54s; request charge #3 by 54s
clock +12s
sweep                        => charge waiting until 63.245s (failures 3, call may be in progress until 66s,
                                reason kept); unlocked; due 93.245s; wake scheduler in 7.245s
