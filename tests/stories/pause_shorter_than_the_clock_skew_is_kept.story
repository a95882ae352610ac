# A pause may be shorter than the clock skew. The supervisor does not wake the scheduler at once, and a deferred step is not sent
# again at once.
timing   clock skew 5s, pickup within 30s
workflow within 1h
  charge: within 10s, attempts 2, backoff from 1s

submit                       => Pending; due 10s
wake                         => Processing; request charge #1 by 10s
clock +15s
sweep                        => charge waiting until 16s (failures 1, may have run, call may be in progress
                                until 25s, reason kept); unlocked; due 46s; wake scheduler in 1s
clock +1s
wake                         => due 26s; request charge #2 by 26s
agent defers charge #2 for 1s "breaker open"
                             => charge waiting until 17s (reason kept); wake scheduler in 1s
clock +1s
wake                         => charge running (call may be in progress until 41s); request charge #3 by 27s
agent defers charge #3 for 0s "breaker open"
                             => charge waiting until 17.100s (reason kept); wake scheduler in 0.1s
