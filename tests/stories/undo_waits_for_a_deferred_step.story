# A deferred request may have been delivered twice. Until the attempt's complete-by, another agent may
# make a call. The undo of the step and of earlier steps waits for that time.
workflow within 10m
  check:   undo
  reserve: after check, within 20s, undo
  notify:  after check, within 60s, attempts 1, then undo

submit                       => Pending; due 20s
wake                         => Processing; request check #1 by 60s
agent completes check #1     => check completed (output kept); request reserve #1 by 20s; request
                                notify #1 by 60s
agent defers reserve #1 for 60s "breaker open"
                             => reserve waiting until 60s (reason kept); wake scheduler in 60s
agent fails notify #1 "no address"
                             => Undoing because "step notify: no address"; reserve running #1;
                                notify failed (failures 1, reason kept)
wake                         => ignored: NothingReady
# The other agent replies.
agent completes reserve #1   => reserve completed (output kept); request undo of reserve #1 by 60s
agent completes undo of reserve #1
                             => reserve undone (output kept); request undo of check #1 by 60s
agent completes undo of check #1
                             => Undone; check undone (output kept); no longer due

# The other agent does not reply, so it is unknown whether it made a call.
submit                       => Pending; due 20s
wake                         => Processing; request check #1 by 60s
agent completes check #1     => check completed (output kept); request reserve #1 by 20s; request
                                notify #1 by 60s
agent defers reserve #1 for 60s "breaker open"
                             => reserve waiting until 60s (reason kept); wake scheduler in 60s
agent fails notify #1 "no address"
                             => Undoing because "step notify: no address"; reserve running #1;
                                notify failed (failures 1, reason kept)
clock +22s
sweep                        => task by 642s; reserve failed (failures 1, may have run, call may
                                be in progress until 42s, reason kept); unlocked; due 72s; wake scheduler in
                                20s
clock +20s
wake                         => request undo of reserve #1 by 102s

# The attempt's complete-by has passed, so no agent makes a call.
submit                       => Pending; due 62s
wake                         => Processing; request check #1 by 102s
agent completes check #1     => check completed (output kept); request reserve #1 by 62s; request
                                notify #1 by 102s
agent defers reserve #1 for 60s "breaker open"
                             => reserve waiting until 102s (reason kept); wake scheduler in 60s
clock +20s
agent fails notify #1 "no address"
                             => Undoing because "step notify: no address"; task by 684s; reserve
                                failed (may have run, call may be in progress until 84s); notify failed
                                (failures 1, reason kept); wake scheduler in 22s
