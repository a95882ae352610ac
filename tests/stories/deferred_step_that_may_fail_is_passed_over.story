# A deferral past the time limit of a step with `then: continue` ends it, and the task goes on without it.
workflow within 10m
  mail: gives up after 70s, then continue
  pay: after mail

submit                       => Pending; due 30s
wake                         => Processing; request mail #1 by 60s
agent defers mail #1 for 90s "breaker open"
                             => mail skipped (failures 1, may have run, call may be in progress until 122s, reason kept);
                                request pay #1 by 60s
agent completes pay #1       => Processed; pay completed (output kept); no longer due
