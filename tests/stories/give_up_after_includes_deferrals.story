# A deferral uses no attempt, but `give_up_after` limits it. The step fails as soon as its next attempt would begin too late. Another
# delivery of the deferred request may still run it.
workflow within 10h
  reserve: undo
  charge:  after reserve, within 20s, gives up after 10m, then undo, undo (gives up after 60s)

submit                       => Pending; due 20s
wake                         => Processing; request reserve #1 by 60s
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 20s
agent defers charge #1 for 6m "breaker open"
                             => charge waiting until 360s (reason kept); wake scheduler in 360s
clock +6m
wake                         => charge running (may have run, call may be in progress until 42s); request charge
                                #2 by 380s
agent defers charge #2 for 5m "breaker open"
                             => Undoing because "step charge: has to wait 5m, past `give_up_after`: breaker
                                open"; task by 36402s; charge failed (failures 1, call may be in progress until
                                402s, reason kept); wake scheduler in 42s
clock +42s
wake                         => request undo of charge #1 by 462s
# A service asks for a pause of a year.
agent defers undo of charge #1 for 8766h "HTTP 429"
                             => Error; undo of charge failed (failures 1, may have run, call may be in progress
                                until 524s, reason kept); due 432s; alert: left to undo reserve, charge "undo of
                                step charge: has to wait 1year, past `give_up_after`: HTTP 429"

# The first attempt is the only one.
submit                       => Pending; due 422s
wake                         => Processing; request reserve #1 by 462s
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 422s
agent defers charge #1 for 10m "breaker open"
                             => Undoing because "step charge: has to wait 10m, past `give_up_after`: breaker
                                open"; task by 36444s; charge failed (failures 1, may have run, call may be in
                                progress until 444s, reason kept); wake scheduler in 42s
clock +42s
wake                         => request undo of charge #1 by 504s
agent completes undo of charge #1
                             => charge undone (output kept); request undo of reserve #1 by 504s
agent completes undo of reserve #1
                             => Undone; reserve undone (output kept); no longer due
