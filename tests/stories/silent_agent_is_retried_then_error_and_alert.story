# The supervisor detects a silent agent, and the step is retried. After the last attempt the task is
# in Error, and an alert is sent.
timing   clock skew 2s, pickup within 30s
workflow within 10m
  reserve: within 20s, attempts 3
  charge:  after reserve, within 20s

submit                       => Pending; due 20s
wake                         => Processing; request reserve #1 by 20s
clock +22s
sweep                        => reserve waiting (failures 1, may have run, call may be in progress until 42s,
                                reason kept); unlocked; due 52s; wake scheduler
clock +1s
wake                         => due 43s; request reserve #2 by 43s
clock +22s
sweep                        => reserve waiting (failures 2, call may be in progress until 65s, reason kept);
                                unlocked; due 75s; wake scheduler
wake                         => due 65s; request reserve #3 by 65s
clock +22s
sweep                        => Error; reserve failed (failures 3, call may be in progress until 87s, reason
                                kept); due 97s; alert reserve "step reserve: no reply by
                                complete-by, attempt 3"
alert sent                   => no longer due
