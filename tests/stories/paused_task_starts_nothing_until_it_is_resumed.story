# A paused task starts nothing. Replies of agents are recorded. The time of the pause does not count:
# when the task is resumed, its remaining time is the same as before.
timing   clock skew 2s, pickup within 30s
workflow within 50s
  reserve: within 20s, attempts 2
  charge:  after reserve, within 20s

submit                       => Pending; due 20s
wake                         => Processing; request reserve #1 by 20s
clock +10s
ann pauses because "the warehouse burns"
                             => paused; published: pause
ann pauses                   => refused: the task is paused
agent completes reserve #1   => reserve completed (output kept)
wake                         => ignored: NothingReady
wake (redelivered)           => ignored: NothingReady
sweep                        => ignored: NotDue
clock +22s
sweep                        => due 3632s
clock +3602s
sweep                        => due 7234s
ann resumes because "it was only a toaster"
                             => task by 3674s; no longer paused; due 3654s;
                                request charge #1 by 3654s; published: resume
agent completes charge #1    => Processed; charge completed (output kept); no longer due

# A silent agent is detected while the task is paused, and no other attempt starts.
submit                       => Pending; due 3654s
wake                         => Processing; request reserve #1 by 3654s
ann pauses                   => paused; published: pause
clock +22s
sweep                        => reserve waiting (failures 1, may have run, call may be in progress until
                                3676s, reason kept); unlocked; due 7256s
wake                         => ignored: NothingReady
clock +32s
sweep                        => ignored: NotDue
wake                         => ignored: NothingReady
ann resumes                  => task by 3738s; no longer paused; due 3708s;
                                request reserve #2 by 3708s; published: resume; wake scheduler
agent completes reserve #2   => reserve completed (output kept); request charge #1 by 3708s
# The last step completes while the task is paused.
ann pauses                   => paused; published: pause
agent completes charge #1    => charge completed (output kept)
ann resumes                  => Processed; no longer paused; no longer due; published: resume

# The task is Pending.
submit                       => Pending; due 3708s
ann pauses                   => paused; due 7288s; published: pause
wake                         => ignored: NothingReady
clock +3602s
sweep                        => due 10890s
clock +1s
ann resumes                  => Processing; task by 7341s; no longer paused; due 7311s;
                                request reserve #1 by 7311s; published: resume
ann cancels                  => Error; due 7321s; alert "cancelled by ann: a test"; published: cancel

# Waits continue when the task is resumed.
submit                       => Pending; due 7311s
wake                         => Processing; request reserve #1 by 7311s
agent defers reserve #1 for 20s "breaker open"
                             => reserve waiting until 7311s (reason kept); wake scheduler in 20s
ann pauses                   => paused; due 10891s; published: pause
clock +5s
ann resumes                  => task by 7346s; no longer paused; due 7341s; published: resume;
                                wake scheduler in 15s
clock +15s
wake                         => reserve running (may have run, call may be in progress until 7333s); due
                                7331s; request reserve #2 by 7331s
