# In Error, the supervisor goes on with what has started. Nothing is left to undo where nothing has taken effect.
workflow within 10m
  mail:    within 60s, attempts 1
  charge:  within 60s, attempts 2, backoff from 100s up to 100s, then undo, undo

submit => Pending; due 30s
wake => Processing; request mail #1 by 60s; request charge #1 by 60s
agent fails mail #1 "no such address" => Error; mail failed (failures 1, reason kept); alert mail "step mail: no such address"
alert sent => due 60s
clock +65s
sweep => charge waiting until 165s (failures 1, may have run, call may be in progress until 122s, reason kept); due 195s; wake scheduler in 100s
clock +110s
wake => request charge #2 by 235s
clock +70s
sweep => Undoing because "step charge: no reply by complete-by, attempt 2"; task by 897s; charge failed (failures 2, call may be in progress until 297s, reason kept); unlocked; due 327s; wake scheduler in 52s
clock +60s
wake => request undo of charge #1 by 365s
agent completes undo of charge #1 => Undone; charge undone (output kept); no longer due

submit => Pending; due 335s
wake => Processing; request mail #1 by 365s; request charge #1 by 365s
agent fails mail #1 "no such address" => Error; mail failed (failures 1, reason kept); alert mail "step mail: no such address"
agent fails charge #1 "no"   => Undone because "step charge: no"; charge failed (failures 1, reason kept); no
                                longer due; alert mail "step mail: no such address"

submit => Pending; due 335s
wake => Processing; request mail #1 by 365s; request charge #1 by 365s
agent fails mail #1 "no such address" => Error; mail failed (failures 1, reason kept); alert mail "step mail: no such address"
alert sent => due 365s
agent defers charge #1 for 60s "busy" => charge waiting until 365s (reason kept); wake scheduler in 60s
clock +60s
wake => charge running (may have run, call may be in progress until 427s); request charge #2 by 425s
agent fails charge #2 "no" => Undoing because "step charge: no"; task by 1027s; charge failed (failures 1, reason kept); wake scheduler in 62s
