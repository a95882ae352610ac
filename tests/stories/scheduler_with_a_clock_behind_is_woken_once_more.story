# The supervisor's clock may be ahead of the scheduler's by the skew. The wake comes too early by the scheduler's clock, so another
# one follows. No pause ends before its time.
timing   clock skew 2s, pickup within 30s
workflow within 10m
  reserve: within 20s, attempts 2

submit                       => Pending; due 20s
wake                         => Processing; request reserve #1 by 20s
clock +22s
sweep                        => reserve waiting (failures 1, may have run, call may be in progress until 42s,
                                reason kept); unlocked; due 52s; wake scheduler
clock -2.001s
wake                         => ignored: NothingReady
clock +0.001s
wake                         => ignored: NothingReady; again wake scheduler in 2s
clock +2s
wake                         => due 42s; request reserve #2 by 42s
