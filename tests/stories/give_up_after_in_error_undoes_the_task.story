# As in give_up_after_in_error, but an undo wins over an alert.
workflow within 1h
  reserve: within 20s
  charge:  within 20s, backoff from 10s, gives up after 60s, then undo

submit                       => Pending; due 20s
wake                         => Processing; request reserve #1 by 20s; request charge #1 by 20s
agent cuts charge #1 "too slow"
                             => charge waiting until 10s (failures 1, may have run, call may be in progress
                                until 42s, reason kept); wake scheduler in 10s
agent fails reserve #1 "sold out"
                             => Error; reserve failed (failures 1, reason kept); due 30s; alert reserve "step
                                reserve: sold out"
clock +62s
sweep                        => Undoing because "step charge: `give_up_after` is over"; task by 3662s; charge
                                failed; due 92s; alert reserve "step reserve: sold out"; wake scheduler
wake                         => Undone; no longer due
