# An agent's first call of a step times out, and its second call completes. The first may continue, so
# the undo waits for it.
workflow within 10m
  check:   undo
  reserve: after check, within 20s, undo (within 20s)
  charge:  after reserve, then undo

submit                       => Pending; due 20s
wake                         => Processing; request check #1 by 60s
agent completes check #1     => check completed (output kept); request reserve #1 by 20s
agent completes reserve #1 with {"id":1}, and an earlier call may continue
                             => reserve completed (call may be in progress until 42s, output kept); request
                                charge #1 by 60s
agent fails charge #1 "no"   => Undoing because "step charge: no"; task by 642s; charge failed
                                (failures 1, reason kept); wake scheduler in 42s
clock +42s
wake                         => request undo of reserve #1 by 62s
# The same for an undo.
agent completes undo of reserve #1, and an earlier call may continue
                             => task by 684s; reserve undone (call may be in progress until 84s, output kept);
                                wake scheduler in 42s
clock +42s
wake                         => request undo of check #1 by 144s
agent completes undo of check #1
                             => Undone; check undone (output kept); no longer due
