# An undo does not wait for a callback. It waits for the call that passes on the token.
workflow within 2h
  approve: callback within 1h, body ${ callback.token }, undo
  check:   then undo

submit                       => Pending; due 30s
wake                         => Processing; request approve #1 by 60s with "o-1/approve/i000000000";
                                request check #1 by 60s
agent completes approve #1   => approve awaiting callback until 3600s
agent fails check #1 "no"    => Undoing because "step check: no"; approve failed (may have run);
                                check failed (failures 1, reason kept);
                                request undo of approve #1 by 60s
callback completes approve with 1
                             => ignored: DuplicateReply
agent completes undo of approve #1
                             => Undone; approve undone (output kept); no longer due
submit                       => Pending; due 30s
wake                         => Processing; request approve #1 by 60s with "o-1/approve/i000000000";
                                request check #1 by 60s
agent fails check #1 "no"    => Undoing because "step check: no"; check failed (failures 1, reason kept)
agent completes approve #1   => approve failed (failures 1, may have run, reason kept);
                                request undo of approve #1 by 60s
