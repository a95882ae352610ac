# The service does not know of a pause: what may have run is not repeated after it, and the step fails.
workflow within 10m
  charge:  within 20s, attempts 3, backoff from 30s, key valid for 60s, then undo, undo

submit                       => Pending; due 20s
wake                         => Processing; request charge #1 by 20s
clock +10s
agent cuts charge #1 "too slow"
                             => charge waiting until 40s (failures 1, may have run, call may be in progress
                                until 42s, reason kept); wake scheduler in 30s
ann pauses                   => paused; due 3610s; published: pause
clock +60s
ann resumes                  => task by 660s; no longer paused; due 100s; published: resume; wake scheduler
clock +32s
sweep                        => Undoing because "step charge: `key_valid_for` is over"; task by 702s; charge
                                failed; due 132s; wake scheduler
