# A deferred request may have been delivered twice. The other agent may make a call until complete-by,
# independent of the next attempt's outcome.
workflow within 10m
  reserve: within 20s, then undo, undo
  charge:  after reserve, then undo

# The next attempt fails.
submit                       => Pending; due 20s
wake                         => Processing; request reserve #1 by 20s
agent defers reserve #1 for 10s "breaker open"
                             => reserve waiting until 10s (reason kept); wake scheduler in 10s
clock +10s
wake                         => reserve running (may have run, call may be in progress until 42s); request
                                reserve #2 by 30s
agent fails reserve #2 "HTTP 401"
                             => Undoing because "step reserve: HTTP 401"; task by 642s; reserve
                                failed (failures 1, reason kept); wake scheduler in 32s
clock +32s
wake                         => request undo of reserve #1 by 102s
agent completes undo of reserve #1
                             => Undone; reserve undone (output kept); no longer due

# The next attempt completes, and a later step fails.
submit                       => Pending; due 62s
wake                         => Processing; request reserve #1 by 62s
agent defers reserve #1 for 1s "breaker open"
                             => reserve waiting until 43s (reason kept); wake scheduler in 1s
clock +1s
wake                         => reserve running (may have run, call may be in progress until 84s); request
                                reserve #2 by 63s
agent completes reserve #2   => reserve completed (output kept); request charge #1 by 103s
agent fails charge #1 "no"   => Undoing because "step charge: no"; task by 684s; charge failed
                                (failures 1, reason kept); wake scheduler in 41s
clock +41s
wake                         => request undo of reserve #1 by 144s

# An operator resubmits the step in a paused task and undoes the task.
submit                       => Pending; due 104s
wake                         => Processing; request reserve #1 by 104s
agent defers reserve #1 for 60s "breaker open"
                             => reserve waiting until 144s (reason kept); wake scheduler in 60s
ann pauses                   => paused; due 3684s; published: pause
ann resubmits reserve        => reserve waiting; published: resubmit reserve
ann undoes                   => Undoing because "requested by ann: a test"; reserve running #1; due
                                104s; published: undo
ann resumes                  => no longer paused; published: resume
