# In Error, what has started goes on, until its time limit.
workflow within 1h
  reserve: within 20s
  charge:  within 20s, backoff from 10s, gives up after 60s, undo

submit                       => Pending; due 20s
wake                         => Processing; request reserve #1 by 20s; request charge #1 by 20s
agent cuts charge #1 "too slow"
                             => charge waiting until 10s (failures 1, may have run, call may be in progress
                                until 42s, reason kept); wake scheduler in 10s
agent fails reserve #1 "sold out"
                             => Error; reserve failed (failures 1, reason kept); due 30s; alert reserve "step
                                reserve: sold out"
alert sent                   => due 40s
clock +62s
wake                         => ignored: NothingReady
sweep                        => charge failed; due 92s; alert charge, reserve "step charge: `give_up_after` is
                                over; step reserve: sold out"
