# The call hands out a token; whoever has it answers. Tokens of older releases name an attempt, and only the
# newest counts.
workflow within 2h
  approve: callback within 1h, within 20s, attempts 2, path /ask/${ callback.token }
  ship:    after approve, body ${ steps.approve.output.by }

submit                       => Pending; due 20s
wake                         => Processing; request approve #1 by 20s at /ask/o-1%2Fapprove%2Fi000000000
agent completes approve #1 with {"ticket":7}
                             => approve handed out until 3600s
agent completes approve #1 with {"ticket":7}
                             => ignored: DuplicateReply
wake (redelivered)           => ignored: NothingReady
someone is still at approve #1
                             => ignored: StillAwaited
clock +3602s
sweep                        => approve waiting (failures 1, may have run, reason kept); unlocked;
                                due 3632s; wake scheduler
someone fails approve #1 "no"
                             => ignored: StaleReply
wake                         => due 3622s; request approve #2 by 3622s at /ask/o-1%2Fapprove%2Fi000000000
someone completes approve #1 with {"by":"eve"}
                             => ignored: StaleReply
someone completes approve #2 with {"by":"bob"}
                             => approve completed (call may last until 3644s, output kept); request
                                ship #1 by 3662s with "bob"
agent completes approve #2 with {"ticket":8}
                             => ignored: DuplicateReply
someone completes approve #2 with {"by":"bob"} (redelivered)
                             => ignored: DuplicateReply; again request ship #1 by 3662s with "bob"
someone completes approve #3 with {"by":"bob"}
                             => illegal: a callback to attempt 3 at step `approve`; the newest is 2
someone completes ship #1    => illegal: a callback to step `ship`, which awaits none
agent completes ship #1      => Processed; ship completed (output kept); no longer due
