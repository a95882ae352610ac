# All attempts with the same input have the same token, as they have the same idempotency key. A
# callback counts for the newest attempt. Refused are: a failure between two attempts, and any
# callback with an old token after an edit of the input.
workflow within 2h
  approve: callback within 1h, within 20s, attempts 2, path /ask/${ callback.token }
  ship:    after approve, body ${ steps.approve.output.by }

submit                       => Pending; due 20s
callback completes approve
                             => illegal: a callback to step `approve`, which never started
wake                         => Processing; request approve #1 by 20s at /ask/o-1%2Fapprove%2Fi000000000
agent completes approve #1 with {"ticket":7}
                             => approve awaiting callback until 3600s
callback of c-9 completes approve with {"by":"eve"}
                             => ignored: StaleReply
clock +3602s
sweep                        => approve waiting (failures 1, may have run, reason kept); unlocked;
                                due 3632s; wake scheduler
callback fails approve "no"
                             => ignored: StaleReply
wake                         => due 3622s; request approve #2 by 3622s at /ask/o-1%2Fapprove%2Fi000000000
callback completes approve with {"by":"eve"}
                             => approve completed (call may be in progress until 3644s, output kept); request
                                ship #1 by 3662s with "eve"
agent completes approve #2 with {"ticket":8}
                             => ignored: DuplicateReply
callback completes approve with {"by":"eve"}
                             => ignored: DuplicateReply
callback completes ship  => illegal: a callback to step `ship`, which awaits none
agent completes ship #1      => Processed; ship completed (output kept); no longer due
