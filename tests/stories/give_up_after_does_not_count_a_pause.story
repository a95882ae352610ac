# The pause of a task does not count for the time limit of its steps. While it is paused, no step gives up.
workflow within 1h
  charge: within 20s, backoff from 10s, gives up after 60s

submit                       => Pending; due 20s
wake                         => Processing; request charge #1 by 20s
agent defers charge #1 for 30s "breaker open"
                             => charge waiting until 30s (reason kept); wake scheduler in 30s
ann pauses                   => paused; due 3600s; published: pause
clock +100s
ann resumes                  => task by 3700s; no longer paused; charge running (may have run, call may be in
                                progress until 42s); due 120s; request charge #2 by 120s; published: resume;
                                wake scheduler
clock +1s
agent defers charge #2 for 50s "breaker open"
                             => charge waiting until 151s (reason kept); wake scheduler in 50s
agent defers charge #2 for 60s "breaker open"
                             => ignored: StaleReply

submit                       => Pending; due 121s
wake                         => Processing; request charge #1 by 121s
ann pauses                   => paused; published: pause
agent defers charge #1 for 1000s "breaker open"
                             => charge waiting until 1101s (reason kept)
ann resumes                  => no longer paused; due 191s; published: resume
clock +92s
sweep                        => Error; charge failed (may have run, call may be in progress until 143s); due
                                223s; alert charge "step charge: `give_up_after` is over"
# The operator knows that the service works again.
ann resubmits                => Processing; task by 3793s; due 213s; request charge #2 by 213s; published:
                                resubmit charge
agent cuts charge #2 "too slow"
                             => charge waiting until 203s (failures 1, call may be in progress until 235s,
                                reason kept); wake scheduler in 10s
clock +40s
ann resubmits                => charge running (failures 0); due 253s; request charge #3 by 253s; published:
                                resubmit charge
