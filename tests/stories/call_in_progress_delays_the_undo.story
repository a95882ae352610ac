# A call of unknown outcome may still be in progress at its service until the attempt's complete-by
# plus the longest duration of a call. Until then, its step and the steps before it are not undone,
# and the task is not Undone.
timing   clock skew 2s, pickup within 30s
workflow within 10m
  reserve: within 20s, undo (within 20s)
  charge:  after reserve, within 30s, attempts 1, then undo, undo (within 20s)

# The agent's retry was refused, and its first call may still be in progress.
submit                       => Pending; due 20s
wake                         => Processing; request reserve #1 by 20s
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 30s
clock +20s
agent fails charge #1 "HTTP 409", may have run
                             => Undoing because "step charge: HTTP 409"; task by 662s; charge failed
                                (failures 1, may have run, call may be in progress until 62s, reason kept);
                                wake scheduler in 42s
clock +41s
wake => ignored: NothingReady; again wake scheduler in 1s
clock +1s
wake                         => request undo of charge #1 by 82s
agent completes undo of charge #1
                             => charge undone (output kept); request undo of reserve #1 by 82s
agent completes undo of reserve #1
                             => Undone; reserve undone (output kept); no longer due

# The wake is lost; the supervisor repeats it.
submit                       => Pending; due 82s
wake                         => Processing; request reserve #1 by 82s
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 92s
agent fails charge #1 "HTTP 409", may have run
                             => Undoing because "step charge: HTTP 409"; task by 724s; charge failed
                                (failures 1, may have run, call may be in progress until 124s, reason kept);
                                wake scheduler in 62s
agent fails charge #1 "HTTP 409", may have run (redelivered)
                             => ignored: DuplicateReply; again wake scheduler in 62s
clock +94s
sweep                        => due 186s; wake scheduler
wake                         => due 176s; request undo of charge #1 by 176s
agent completes undo of charge #1
                             => charge undone (output kept); request undo of reserve #1 by 176s
agent completes undo of reserve #1
                             => Undone; reserve undone (output kept); no longer due

# The second attempt completed, and a call of the first may be in progress. The operator requests the
# undo while the task is paused.
submit                       => Pending; due 176s
wake                         => Processing; request reserve #1 by 176s
clock +22s
sweep                        => reserve waiting (failures 1, may have run, call may be in progress until 198s,
                                reason kept); unlocked; due 208s; wake scheduler
wake                         => due 198s; request reserve #2 by 198s
agent completes reserve #2   => reserve completed (output kept); request charge #1 by 208s
ann pauses                   => paused; due 208s; published: pause
ann undoes                   => Undoing because "requested by ann: a test"; task by 798s; published:
                                undo
ann resumes                  => no longer paused; published: resume; wake scheduler in 20s
agent completes charge #1    => charge completed (output kept); due 198s; request undo of charge #1
                                by 198s
agent completes undo of charge #1
                             => charge undone (output kept)
clock +20s
wake                         => request undo of reserve #1 by 218s
agent completes undo of reserve #1
                             => Undone; reserve undone (output kept); no longer due
