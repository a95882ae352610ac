# A task in Undoing can be paused. An undo that is requested for a paused task starts when it is
# resumed.
timing   clock skew 2s, pickup within 30s
workflow within 50s
  check:   undo
  reserve: after check, within 20s, undo (within 20s)
  charge:  after reserve, within 20s, attempts 1, then undo

submit                       => Pending; due 20s
wake                         => Processing; request check #1 by 50s
agent completes check #1     => check completed (output kept); request reserve #1 by 20s
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 20s
agent fails charge #1 "card declined"
                             => Undoing because "step charge: card declined";
                                charge failed (failures 1, reason kept);
                                request undo of reserve #1 by 20s
clock +10s
ann pauses                   => paused; published: pause
agent completes undo of reserve #1
                             => reserve undone (output kept)
wake                         => ignored: NothingReady
clock +100s
sweep                        => due 3710s
ann resumes                  => task by 150s; no longer paused; due 150s;
                                request undo of check #1 by 150s; published: resume
agent completes undo of check #1
                             => Undone; check undone (output kept); no longer due

# A step fails while the task is paused.
submit                       => Pending; due 130s
wake                         => Processing; request check #1 by 160s
agent completes check #1     => check completed (output kept); request reserve #1 by 130s
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 130s
ann pauses                   => paused; published: pause
clock +22s
sweep                        => Undoing because "step charge: no reply by complete-by, attempt 1";
                                task by 202s; charge failed (failures 1, may have run, call may be in progress
                                until 152s, reason kept); unlocked; due 3732s
wake                         => ignored: NothingReady
ann resumes                  => task by 224s; no longer paused; due 182s; published: resume; wake
                                scheduler in 20s
agent completes undo of charge #1
                             => illegal: a reply to the undo of step `charge`, which never started
clock +20s
wake                         => due 172s; request undo of reserve #1 by 172s
agent completes undo of reserve #1
                             => reserve undone (output kept); request undo of check #1 by 212s
agent completes undo of check #1
                             => Undone; check undone (output kept); no longer due

# The task is Pending.
submit                       => Pending; due 172s
ann pauses                   => paused; due 3752s; published: pause
ann undoes                   => Undoing because "requested by ann: a test"; published: undo
ann resumes                  => Undone; no longer paused; no longer due; published: resume
