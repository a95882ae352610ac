# The next agent gets a request only if the one before has certainly not run the step. That uses no
# attempt, and no time. After the last agent, the step waits, and starts again with the first.
workflow within 1h
  charge: agents visa and backup, within 20s, attempts 2, backoff from 1s, then undo, undo

submit                       => Pending; due 20s
wake                         => Processing; request charge #1 to visa by 20s
agent defers charge #1 for 10s "breaker open", for certain
                             => document step/charge/1/deferral; request charge #2 to backup by 20s
agent defers charge #1 for 10s "breaker open", for certain
                             => ignored: StaleReply
# The scheduler may have crashed before it sent the request to the second agent.
agent defers charge #1 for 10s "breaker open", for certain (redelivered)
                             => ignored: StaleReply; again request charge #2 to backup by 20s
agent defers charge #2 for 10s "breaker open", for certain
                             => charge waiting until 10s (reason kept); wake scheduler in 10s
clock +10s
wake                         => request charge #3 to visa by 30s
agent defers charge #3 for 10s "breaker open", for certain
                             => document step/charge/3/deferral; request charge #4 to backup by 30s
agent cuts charge #4 "the call took longer than 5s"
                             => charge waiting until 11s (failures 1, may have run, call may be in
                                progress until 52s, reason kept); wake scheduler in 1s
# The second agent may have run it, so the step stays with it.
clock +1s
wake                         => request charge #5 to backup by 31s
agent defers charge #5 for 10s "breaker open", for certain
                             => charge waiting until 21s (reason kept); wake scheduler in 10s
clock +10s
wake                         => charge running (call may be in progress until 53s); request charge
                                #6 to backup by 41s
agent fails charge #6 "HTTP 422"
                             => Undoing because "step charge: HTTP 422"; task by 3653s; charge
                                failed (failures 2, reason kept); wake scheduler in 32s
clock +60s
wake                         => request undo of charge #1 to backup by 141s

# An agent ran an attempt that it had refused. Two services may have charged.
submit                       => Pending; due 101s
wake                         => Processing; request charge #1 to visa by 101s
agent defers charge #1 for 10s "breaker open", for certain
                             => document step/charge/1/deferral; request charge #2 to backup by 101s
agent completes charge #2    => Processed; charge completed (output kept); no longer due
agent completes charge #1 => Error; document step/charge/1/output; due 111s; alert charge "step charge: attempt 1 ran at visa too: `undo` the task, or revert one effect at its service and `resubmit --did-not-run`"
submit                       => Pending; due 101s
wake                         => Processing; request charge #1 to visa by 101s
agent defers charge #1 for 10s "breaker open", for certain
                             => document step/charge/1/deferral; request charge #2 to backup by 101s
agent completes charge #1 => Error; document step/charge/1/output; alert charge "step charge: attempt 1 ran at visa too: `undo` the task, or revert one effect at its service and `resubmit --did-not-run`"
