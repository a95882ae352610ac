# A call that was cut has an unknown outcome. It counts at once as an attempt without a reply.
timing   clock skew 2s, pickup within 30s
workflow within 10m
  reserve: within 20s, attempts 2, backoff from 2s, then undo, undo (within 20s, attempts 2, backoff from 2s)
  notify:  within 20s
  ship:    within 20s, attempts 2, backoff from 2s

submit                       => Pending; due 20s
agent cuts reserve #1 "the call was cut"
                             => illegal: a reply to step `reserve`, which never started
agent cuts undo of reserve #1 "the call was cut"
                             => illegal: a reply to the undo of step `reserve`, which never started
wake                         => Processing; request reserve #1 by 20s; request notify #1 by 20s;
                                request ship #1 by 20s
agent cuts undo of reserve #1 "the call was cut"
                             => illegal: a reply to the undo of step `reserve`, which never started
agent cuts reserve #1 "the call was cut"
                             => reserve waiting until 2s (failures 1, may have run, call may be in progress
                                until 42s, reason kept); wake scheduler in 2s
agent cuts reserve #1 "the call was cut" (redelivered)
                             => ignored: StaleReply; again wake scheduler in 2s
clock +2s
wake                         => request reserve #2 by 22s
agent completes ship #1      => ship completed (output kept)
agent cuts reserve #2 "the call was cut"
                             => Undoing because "step reserve: the call was cut, attempt 2"; task by
                                644s; reserve failed (failures 2, call may be in progress until 44s, reason
                                kept); wake scheduler in 42s
agent cuts notify #1 "the call was cut"
                             => notify failed (failures 1, may have run, call may be in progress until 42s,
                                reason kept); wake scheduler in 40s
clock +42s
wake                         => request undo of reserve #1 by 64s
agent cuts undo of reserve #1 "the call was cut"
                             => undo of reserve waiting until 46s (failures 1, may have run, call
                                may be in progress until 86s, reason kept); wake scheduler in 2s
clock +2s
wake                         => request undo of reserve #2 by 66s
agent completes undo of reserve #2
                             => task by 686s; reserve undone (output kept); wake scheduler in 40s
clock +40s
wake                         => Undone; no longer due
agent cuts reserve #2 "the call was cut"
                             => ignored: DuplicateReply
agent cuts undo of reserve #2 "the call was cut"
                             => ignored: DuplicateReply

# In Error: replies to running attempts are recorded.
submit                       => Pending; due 106s
wake                         => Processing; request reserve #1 by 106s; request notify #1 by 106s;
                                request ship #1 by 106s
agent fails notify #1 "no address" => Error; notify failed (failures 1, reason kept); alert notify "step notify: no address"
agent cuts ship #1 "the call was cut" => ship waiting until 88s (failures 1, may have run, call may be in progress until 128s, reason kept); wake scheduler in 2s
agent completes reserve #1   => reserve completed (output kept)
ann undoes                   => Undoing because "requested by ann: a test"; task by 728s; ship failed; due 106s;
                                request undo of reserve #1 by 106s; published: undo; wake scheduler in 42s
ann cancels                  => Error; due 116s; alert: left to undo reserve "cancelled by ann: a
                                test"; published: cancel
agent cuts undo of reserve #1 "the call was cut"
                             => undo of reserve waiting until 88s (failures 1, may have run, call
                                may be in progress until 128s, reason kept)

submit                       => Pending; due 106s
wake                         => Processing; request reserve #1 by 106s; request notify #1 by 106s;
                                request ship #1 by 106s
agent completes reserve #1   => reserve completed (output kept)
agent completes notify #1    => notify completed (output kept)
agent completes ship #1      => Processed; ship completed (output kept); no longer due
agent cuts reserve #1 "the call was cut"
                             => ignored: DuplicateReply
agent cuts undo of reserve #1 "the call was cut"
                             => illegal: a reply to the undo of step `reserve`, which never started
