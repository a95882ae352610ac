# The agent's function is killed, and the supervisor gives the attempt up. The service sends the
# callback before the next attempt. It completes the step, because the service would not send it a
# second time.
workflow within 2h
  approve: callback within 1h, within 20s, attempts 2, path /ask/${ callback.token }
  ship:    after approve, body ${ steps.approve.output.by }

submit                       => Pending; due 20s
wake                         => Processing; request approve #1 by 20s at /ask/o-1%2Fapprove%2Fi000000000
clock +22s
sweep                        => approve waiting (failures 1, may have run, call may be in progress until 42s,
                                reason kept); unlocked; due 52s; wake scheduler
callback completes approve with {"by":"eve"}
                             => approve completed (output kept); request ship #1 by 82s with "eve"
wake                         => ignored: NothingReady
callback completes approve with {"by":"eve"} (redelivered)
                             => ignored: DuplicateReply; again request ship #1 by 82s with "eve"
agent completes approve #1 with {"ticket":7}
                             => ignored: DuplicateReply
agent completes ship #1      => Processed; ship completed (output kept); no longer due
