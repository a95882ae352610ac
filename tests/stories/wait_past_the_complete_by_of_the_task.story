# If an attempt can only begin after the task's complete-by, the task is overdue at once: it cannot be done in time.
workflow within 10m
  charge: within 20s

submit                       => Pending; due 20s
wake                         => Processing; request charge #1 by 20s
agent defers charge #1 for 8766h "HTTP 429"
                             => Error; charge waiting until 31557600s (reason kept); due 30s; alert "step charge:
                                has to wait 1year, past the task's complete-by: HTTP 429"
ann resubmits                => Processing; charge running (may have run, call may be in progress until 42s);
                                due 20s; request charge #2 by 20s; published: resubmit charge
agent completes charge #2    => Processed; charge completed (output kept); no longer due
# A pause of the task moves its complete-by, so nothing is decided while it is paused.
submit                       => Pending; due 20s
wake                         => Processing; request charge #1 by 20s
ann pauses                   => paused; published: pause
agent defers charge #1 for 10m "HTTP 429"
                             => charge waiting until 600s (reason kept)
clock +1m
ann resumes                  => task by 660s; no longer paused; due 630s; published: resume; wake scheduler in
                                540s
