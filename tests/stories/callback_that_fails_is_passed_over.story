# A callback that reports a failure passes over a step with `then: continue`, also before its call has returned. The step may
# have run, so it is undone with the task.
workflow within 2h
  approve: callback within 1h, body ${ callback.token }, undo, then continue
  ship:    after approve, when ${ steps.approve.failed }, attempts 1, then undo

submit                       => Pending; due 30s
wake                         => Processing; request approve #1 by 60s with "o-1/approve/i000000000"
callback fails approve "no"  => approve skipped (failures 1, may have run, call may be in progress until 122s,
                                reason kept); request ship #1 by 60s
agent completes approve #1   => ignored: DuplicateReply
agent fails ship #1 "no"     => Undoing because "step ship: no"; task by 7322s; ship failed (failures 1, reason kept);
                                wake scheduler in 122s
clock +122s
wake                         => request undo of approve #1 by 182s
