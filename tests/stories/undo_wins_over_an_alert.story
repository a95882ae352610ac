# Two branches with different policies fail. The task is undone, whichever fails first.
workflow within 10m
  reserve: within 60s, undo
  mail:    after reserve, within 60s, attempts 1
  charge:  after reserve, within 60s, attempts 2, backoff from 20s, then undo

submit => Pending; due 30s
wake => Processing; request reserve #1 by 60s
agent completes reserve #1 => reserve completed (output kept); request mail #1 by 60s; request charge #1 by 60s
agent fails mail #1 "no such address" => Error; mail failed (failures 1, reason kept); alert mail "step mail: no such address"
# What has started goes on to its end: the branch beside the alert is tried again.
agent defers charge #1 for 10s "busy" => charge waiting until 10s (reason kept); wake scheduler in 10s
clock +10s
wake => charge running (may have run, call may be in progress until 122s); request charge #2 by 70s
agent cuts charge #2 "the call was cut" => charge waiting until 30s (failures 1, call may be in progress until 132s, reason kept); wake scheduler in 20s
clock +30s
wake => request charge #3 by 100s
agent fails charge #3 "no"   => Undoing because "step charge: no"; task by 732s; charge failed (failures 2,
                                reason kept); alert mail "step mail: no such address"; wake scheduler in 92s

submit => Pending; due 70s
wake => Processing; request reserve #1 by 100s
agent completes reserve #1 => reserve completed (output kept); request mail #1 by 100s; request charge #1 by 100s
agent fails charge #1 "no" => Undoing because "step charge: no"; charge failed (failures 1, reason kept)
agent fails mail #1 "no such address" => mail failed (failures 1, reason kept); request undo of reserve #1 by 100s
agent completes undo of reserve #1 => Undone; reserve undone (output kept); no longer due

# An operator has cancelled the task: nothing goes on.
submit => Pending; due 70s
wake => Processing; request reserve #1 by 100s
agent completes reserve #1 => reserve completed (output kept); request mail #1 by 100s; request charge #1 by 100s
ann cancels => Error; alert "cancelled by ann: a test"; published: cancel
agent fails charge #1 "no" => charge failed (failures 1, reason kept)
agent fails mail #1 "no such address" => mail failed (failures 1, reason kept)
