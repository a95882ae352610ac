# When a task is resumed, a wake is sent for each wait that is not over. If that wake is lost, the
# supervisor repeats it; so does a redelivered command.
timing   clock skew 2s, pickup within 30s
workflow within 10m
  charge: within 60s

submit                       => Pending; due 30s
wake                         => Processing; request charge #1 by 60s
agent defers charge #1 for 20s "breaker open"
                             => charge waiting until 20s (reason kept); wake scheduler in 20s
ann pauses                   => paused; due 3600s; published: pause
clock +10s
wake                         => ignored: NothingReady
ann resumes                  => task by 610s; no longer paused; due 50s; published: resume;
                                wake scheduler in 10s
repeat command (redelivered)
                             => ignored: DuplicateCommand; again published: resume;
                                again wake scheduler in 10s
clock +42s
sweep                        => due 82s; wake scheduler
wake                         => charge running (may have run, call may be in progress until 122s); request
                                charge #2 by 112s
agent completes charge #2    => Processed; charge completed (output kept); no longer due
