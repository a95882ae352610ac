# No branch is undone, not even an unrelated one, before it is known whether the task can still be
# undone.
workflow within 10m
  reserve: undo
  ship:    within 60s, point of no return
  invoice: within 60s, then undo

submit                       => Pending; due 30s
wake                         => Processing; request reserve #1 by 60s; request ship #1 by 60s;
                                request invoice #1 by 60s
agent completes reserve #1   => reserve completed (output kept)
agent fails invoice #1 "no address"
                             => Undoing because "step invoice: no address";
                                invoice failed (failures 1, reason kept)
wake                         => ignored: NothingReady
clock +1s
agent completes ship #1      => Error; ship completed (output kept); due 31s;
                                alert invoice "not undone, past the point of no return ship: step
                                invoice: no address"

submit                       => Pending; due 31s
wake                         => Processing; request reserve #1 by 61s; request ship #1 by 61s;
                                request invoice #1 by 61s
agent completes reserve #1   => reserve completed (output kept)
agent fails invoice #1 "no address"
                             => Undoing because "step invoice: no address";
                                invoice failed (failures 1, reason kept)
agent fails ship #1 "no lorry"
                             => ship failed (failures 1, reason kept);
                                request undo of reserve #1 by 61s
agent completes undo of reserve #1
                             => Undone; reserve undone (output kept); no longer due
