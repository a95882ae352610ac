# The undo waits for a branch on which an agent still works, because its effect must not happen after
# the undo. The undo of an unrelated branch does not wait for it.
workflow within 10m
  check:   undo
  reserve: after check, undo
  invoice: after check, undo
  notify:  after check, within 60s, attempts 1, then undo

submit                       => Pending; due 30s
wake                         => Processing; request check #1 by 60s
agent completes check #1     => check completed (output kept); request reserve #1 by 60s;
                                request invoice #1 by 60s; request notify #1 by 60s
agent completes reserve #1   => reserve completed (output kept)
clock +5s
agent fails notify #1 "no address"
                             => Undoing because "step notify: no address"; task by 605s;
                                notify failed (failures 1, reason kept);
                                request undo of reserve #1 by 65s
agent completes undo of reserve #1
                             => reserve undone (output kept)
clock +5s
# The branch completes in time, so it is undone too.
agent completes invoice #1   => invoice completed (output kept); request undo of invoice #1 by 70s
agent completes undo of invoice #1
                             => invoice undone (output kept); request undo of check #1 by 70s
agent completes undo of check #1
                             => Undone; check undone (output kept); no longer due

# The branch fails and did not run.
submit                       => Pending; due 40s
wake                         => Processing; request check #1 by 70s
agent completes check #1     => check completed (output kept); request reserve #1 by 70s;
                                request invoice #1 by 70s; request notify #1 by 70s
agent completes reserve #1   => reserve completed (output kept)
agent fails notify #1 "no address"
                             => Undoing because "step notify: no address";
                                notify failed (failures 1, reason kept);
                                request undo of reserve #1 by 70s
agent fails invoice #1 "no paper"
                             => invoice failed (failures 1, reason kept)
agent completes undo of reserve #1
                             => reserve undone (output kept); request undo of check #1 by 70s
agent completes undo of check #1
                             => Undone; check undone (output kept); no longer due

# The branch is silent, so it may have run. There is no other attempt.
submit                       => Pending; due 40s
wake                         => Processing; request check #1 by 70s
agent completes check #1     => check completed (output kept); request reserve #1 by 70s;
                                request invoice #1 by 70s; request notify #1 by 70s
agent completes reserve #1   => reserve completed (output kept)
agent fails notify #1 "no address"
                             => Undoing because "step notify: no address";
                                notify failed (failures 1, reason kept);
                                request undo of reserve #1 by 70s
agent completes undo of reserve #1
                             => reserve undone (output kept)
clock +62s
sweep                        => task by 732s; invoice failed (failures 1, may have run, call may
                                be in progress until 132s, reason kept); unlocked; due 162s; wake scheduler in
                                60s
clock +60s
wake                         => request undo of invoice #1 by 192s
agent completes undo of invoice #1
                             => invoice undone (output kept); request undo of check #1 by 192s
agent completes undo of check #1
                             => Undone; check undone (output kept); no longer due

# The branch is deferred and will not be retried. Its request may have been delivered twice, so the
# undo waits for it as if there had been no reply.
submit                       => Pending; due 162s
wake                         => Processing; request check #1 by 192s
agent completes check #1     => check completed (output kept); request reserve #1 by 192s; request
                                invoice #1 by 192s; request notify #1 by 192s
agent fails notify #1 "no address"
                             => Undoing because "step notify: no address";
                                notify failed (failures 1, reason kept)
agent defers reserve #1 for 10s "breaker open"
                             => ignored: StillAwaited
agent defers invoice #1 for 10s "breaker open", may have run
                             => ignored: StillAwaited
clock +62s
sweep                        => task by 854s; reserve failed (failures 1, may have run, call may
                                be in progress until 254s, reason kept); invoice failed (failures 1, may have
                                run, call may be in progress until 254s, reason kept); unlocked; due 284s;
                                wake scheduler in 60s
clock +60s
wake                         => request undo of reserve #1 by 314s; request undo of invoice #1 by
                                314s
agent completes undo of invoice #1
                             => invoice undone (output kept)
agent completes undo of reserve #1
                             => reserve undone (output kept); request undo of check #1 by 314s
agent completes undo of check #1
                             => Undone; check undone (output kept); no longer due
