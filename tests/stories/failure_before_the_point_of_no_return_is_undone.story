# Before the point of no return the task is undone like any other, also if that step itself failed and
# did not run.
workflow within 10m
  reserve: then undo, undo
  ship:    after reserve, point of no return, then undo

submit                       => Pending; due 30s
wake                         => Processing; request reserve #1 by 60s
agent completes reserve #1   => reserve completed (output kept); request ship #1 by 60s
agent fails ship #1 "no lorry"
                             => Undoing because "step ship: no lorry";
                                ship failed (failures 1, reason kept);
                                request undo of reserve #1 by 60s
agent completes undo of reserve #1
                             => Undone; reserve undone (output kept); no longer due

# If it may have run, it is unknown whether the task can still be undone.
submit                       => Pending; due 30s
wake                         => Processing; request reserve #1 by 60s
agent completes reserve #1   => reserve completed (output kept); request ship #1 by 60s
agent fails ship #1 "no lorry", may have run
                             => Error; ship failed (failures 1, may have run, call may be in progress until
                                122s, reason kept); alert ship "not undone, past the point of no
                                return ship: step ship: no lorry"
# The operator states that it did not run.
clock +122s
ann resubmits ship, it did not run
                             => Processing; task by 722s; ship running (failures 0, did not run);
                                due 182s; request ship #2 by 182s; published: resubmit ship
agent fails ship #2 "no lorry"
                             => Undoing because "step ship: no lorry"; ship failed (failures 1,
                                reason kept); request undo of reserve #1 by 182s
agent completes undo of reserve #1
                             => Undone; reserve undone (output kept); no longer due
