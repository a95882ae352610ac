# `give_up_after` limits all attempts of a step and the pauses between them. No attempt is awaited longer, and no pause begins
# that ends later: the step fails at once.
workflow within 1h
  reserve: undo (gives up after 70s, attempts 9, backoff from 5s)
  charge:  after reserve, within 40s, attempts 9, backoff from 10s rate 1, gives up after 60s, then undo

submit                       => Pending; due 30s
wake                         => Processing; request reserve #1 by 60s
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 40s
clock +20s
agent cuts charge #1 "too slow"
                             => charge waiting until 30s (failures 1, may have run, call may be in progress
                                until 82s, reason kept); wake scheduler in 10s
clock +10s
wake                         => request charge #2 by 60s
clock +25s
agent cuts charge #2 "too slow"
                             => Undoing because "step charge: no retry within `give_up_after`: too slow, attempt
                                2"; task by 3702s; charge failed (failures 2, call may be in progress until
                                102s, reason kept); wake scheduler in 47s
clock +60s
# The undo has a time limit of its own.
wake                         => request undo of reserve #1 by 175s
clock +40s
agent cuts undo of reserve #1 "too slow", may have run
                             => undo of reserve waiting until 160s (failures 1, may have run, call may be in
                                progress until 237s, reason kept); wake scheduler in 5s
clock +5s
wake                         => request undo of reserve #2 by 185s
clock +27s
sweep                        => Error; undo of reserve failed (failures 2, call may be in progress until 247s,
                                reason kept); due 217s; alert: left to undo reserve "undo of step reserve: no
                                retry within `give_up_after`: no reply by complete-by, attempt 2"
# A resubmit starts the time anew.
ann resubmits                => Undoing; task by 3787s; undo of reserve running (failures 0); due 247s; request
                                undo of reserve #3 by 247s; published: resubmit reserve
agent completes undo of reserve #3
                             => task by 3847s; reserve undone (output kept); wake scheduler in 60s

# A silent attempt ends at the limit.
submit                       => Pending; due 217s
wake                         => Processing; request reserve #1 by 247s
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 227s
clock +20s
agent cuts charge #1 "too slow"
                             => charge waiting until 217s (failures 1, may have run, call may be in progress
                                until 269s, reason kept); wake scheduler in 10s
clock +10s
wake                         => request charge #2 by 247s
clock +32s
sweep                        => Undoing because "step charge: no retry within `give_up_after`: no reply by
                                complete-by, attempt 2"; task by 3889s; charge failed (failures 2, call may be
                                in progress until 289s, reason kept); unlocked; due 319s; wake scheduler in 40s
