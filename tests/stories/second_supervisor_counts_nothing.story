# Each sweep moves the due time, so a second supervisor that runs right after the first counts
# nothing, moves nothing and sends nothing.
timing   clock skew 2s, pickup within 30s
workflow within 10m
  reserve: within 40s, attempts 2
  invoice: within 90s

submit                       => Pending; due 30s
clock +32s
sweep                        => due 62s; wake scheduler
sweep                        => ignored: NotDue
wake                         => Processing; request reserve #1 by 72s; request invoice #1 by 122s
clock +32s
sweep                        => due 72s
sweep                        => ignored: NotDue
clock +10s
sweep                        => reserve waiting (failures 1, may have run, call may be in progress until 114s,
                                reason kept); unlocked; due 104s; wake scheduler
sweep                        => ignored: NotDue
wake                         => request reserve #2 by 114s
sweep                        => ignored: NotDue
clock +42s
sweep => Error; reserve failed (failures 2, call may be in progress until 156s, reason kept); due 122s; alert reserve "step reserve: no reply by complete-by, attempt 2"
sweep                        => ignored: NotDue
clock +32s
sweep => invoice waiting (failures 1, may have run, call may be in progress until 214s, reason kept); due 178s; alert reserve "step reserve: no reply by complete-by, attempt 2"; wake scheduler
sweep                        => ignored: NotDue
