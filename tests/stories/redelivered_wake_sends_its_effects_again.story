# A second wake finds nothing to start. If it is redelivered, the effects of the first may have been
# lost when the scheduler crashed after the save, so they are sent again at once.
timing   clock skew 2s, pickup within 30s
workflow within 10m
  reserve: within 20s, attempts 2, body ${ input.item }
  invoice: within 30s, attempts 2

submit with {"item":"tea"}   => Pending; due 20s
wake                         => Processing; request reserve #1 by 20s with "tea";
                                request invoice #1 by 30s
wake                         => ignored: NothingReady
wake (redelivered)           => ignored: NothingReady; again request reserve #1 by 20s with "tea";
                                again request invoice #1 by 30s
clock +22s
sweep                        => reserve waiting (failures 1, may have run, call may be in progress until 42s,
                                reason kept); unlocked; due 30s; wake scheduler
wake                         => request reserve #2 by 42s with "tea"

# Meanwhile the other branch can start too. The lost effects are sent nevertheless.
clock +10s
sweep                        => invoice waiting (failures 1, may have run, call may be in progress until 62s,
                                reason kept); unlocked; due 42s; wake scheduler
wake (redelivered)           => request reserve #2 by 42s with "tea"; request invoice #2 by 62s
agent completes invoice #2   => invoice completed (output kept)
agent completes reserve #2   => Processed; reserve completed (output kept); no longer due
wake (redelivered)           => ignored: Ended
