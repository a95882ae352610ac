# The task goes on without a step whose outcome is unknown. It may have run, so the undo of the task covers it. A late success is
# no news.
workflow within 10m
  mail: attempts 1, then continue, undo (body {"sent":"${ has(steps.mail.output) }"})
  pay: after mail, then undo

submit                       => Pending; due 30s
wake                         => Processing; request mail #1 by 60s
clock +62s
sweep                        => mail skipped (failures 1, may have run, call may be in progress until 122s, reason kept);
                                unlocked; due 92s; wake scheduler
agent completes mail #1 with 7
                             => ignored: DuplicateReply
wake                         => request pay #1 by 122s
agent fails pay #1 "no"      => Undoing because "step pay: no"; task by 722s; pay failed (failures 1, reason kept);
                                wake scheduler in 60s
clock +102s
wake                         => request undo of mail #1 by 224s with {"sent":false}
agent completes undo of mail #1
                             => Undone; mail undone (output kept); no longer due
