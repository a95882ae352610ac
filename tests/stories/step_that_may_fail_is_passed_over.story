# The task goes on without a step with `then: continue` that failed. Later steps see that it failed, and that its output is null.
workflow within 10m
  mail: attempts 1, then continue
  ship: after mail, when ${ !steps.mail.failed }
  call: after mail, when ${ steps.mail.failed }, body {"mail":"${ steps.mail.output }"}

submit                       => Pending; due 30s
wake                         => Processing; request mail #1 by 60s
agent fails mail #1 "no such mailbox"
                             => mail skipped (failures 1, reason kept); ship skipped;
                                request call #1 by 60s with {"mail":null}
agent completes call #1      => Processed; call completed (output kept); no longer due
agent completes mail #1      => Error; mail skipped (may have run); due 30s;
                                alert "step mail took effect, and it was skipped"
