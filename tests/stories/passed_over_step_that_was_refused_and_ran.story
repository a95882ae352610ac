# A step is refused, and the task goes on without it. Another delivery of its request takes effect: the end does not account for
# that, because the steps after it know that it failed.
workflow within 10m
  mail: attempts 1, then continue
  call: after mail, when ${ steps.mail.failed }

submit                       => Pending; due 30s
wake                         => Processing; request mail #1 by 60s
agent fails mail #1 "no such mailbox"
                             => mail skipped (failures 1, reason kept); request call #1 by 60s
agent completes mail #1 with 7
                             => Error; mail skipped (may have run); alert "step mail took effect, and it was skipped"
ann resubmits                => Processing; published: resubmit
agent completes call #1      => Processed; call completed (output kept); no longer due
