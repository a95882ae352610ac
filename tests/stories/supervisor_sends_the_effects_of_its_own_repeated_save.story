# A supervisor's save took effect, but its response was lost, and the SDK repeated the save. The
# supervisor finds its own save instead of a due task. The effects of that save have not been sent
# yet, so it sends them.
workflow within 10m
  reserve: within 20s, attempts 2

submit                       => Pending; due 20s
wake                         => Processing; request reserve #1 by 20s
clock +22s
sweep                        => reserve waiting (failures 1, may have run, call may be in progress until 42s,
                                reason kept); unlocked; due 52s; wake scheduler
sweep (redelivered)          => ignored: NotDue; again wake scheduler
sweep                        => ignored: NotDue
wake                         => due 42s; request reserve #2 by 42s
clock +22s
sweep                        => Error; reserve failed (failures 2, call may be in progress until 64s, reason
                                kept); due 74s; alert reserve "step reserve: no reply by
                                complete-by, attempt 2"
sweep (redelivered)          => ignored: NotDue; again alert reserve "step reserve: no reply by
                                complete-by, attempt 2"
sweep                        => ignored: NotDue
