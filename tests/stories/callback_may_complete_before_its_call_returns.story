# A callback may arrive before the call that passed on the token has returned. The undo waits for that
# call.
workflow within 2h
  check:   undo
  approve: after check, callback within 1h, within 20s, then undo, undo, path /ask/${ callback.token }
  notify:  after check, within 60s, then undo
  ship:    after approve, then undo

# The callback fails.
submit                       => Pending; due 20s
wake                         => Processing; request check #1 by 60s
agent completes check #1     => check completed (output kept); request approve #1 by 20s at
                                /ask/o-1%2Fapprove%2Fi000000000; request notify #1 by 60s
agent completes notify #1    => notify completed (output kept)
clock +1s
callback fails approve "no"  => Undoing because "step approve: the callback reported a failure"; task by 7242s;
                                approve failed (failures 1, may have run, call may be in progress until 42s,
                                reason kept); wake scheduler in 41s
clock +41s
wake                         => request undo of approve #1 by 102s
agent completes undo of approve #1
                             => approve undone (output kept); request undo of check #1 by 102s
agent completes undo of check #1
                             => Undone; check undone (output kept); no longer due

# The callback completes, and a later step fails.
submit                       => Pending; due 62s
wake                         => Processing; request check #1 by 102s
agent completes check #1     => check completed (output kept); request approve #1 by 62s at
                                /ask/o-1%2Fapprove%2Fi000000weo; request notify #1 by 102s
agent completes notify #1    => notify completed (output kept)
callback completes approve with {"by":"bob"}
                             => approve completed (call may be in progress until 84s, output kept); request
                                ship #1 by 102s
agent fails ship #1 "no lorry"
                             => Undoing because "step ship: no lorry"; task by 7284s; ship failed
                                (failures 1, reason kept); wake scheduler in 42s
agent cuts approve #1 "the call took longer than 20s"
                             => ignored: DuplicateReply
clock +42s
wake                         => request undo of approve #1 by 144s

# The undo already waits for the agent.
submit                       => Pending; due 104s
wake                         => Processing; request check #1 by 144s
agent completes check #1     => check completed (output kept); request approve #1 by 104s at
                                /ask/o-1%2Fapprove%2Fi000001stc; request notify #1 by 144s
agent fails notify #1 "no address"
                             => Undoing because "step notify: no address"; notify failed (failures
                                1, reason kept)
callback completes approve with {"by":"bob"}
                             => task by 7326s; approve completed (call may be in progress until 126s, output
                                kept); wake scheduler in 42s
clock +42s
wake                         => request undo of approve #1 by 186s
