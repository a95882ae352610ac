# A callback either fails the step permanently, or completes it with an output that has the usual size
# limit.
workflow within 2h
  approve: callback within 1h, body ${ callback.token }, then undo, undo
  ship:    after approve

submit                       => Pending; due 30s
wake                         => Processing; request approve #1 by 60s with "o-1/approve/i000000000"
agent completes approve #1   => approve awaiting callback until 3600s
callback fails approve "never"
                             => Undoing because "step approve: the callback reported a failure"; approve failed
                                (failures 1, may have run, reason kept); request undo of approve #1 by 60s

submit                       => Pending; due 30s
wake                         => Processing; request approve #1 by 60s with "o-1/approve/i000000000"
agent completes approve #1   => approve awaiting callback until 3600s
callback completes approve with 131073 bytes
                             => Undoing because "step approve: an output of 131073 bytes;
                                the limit is 131072";
                                approve failed (failures 1, may have run, reason kept);
                                request undo of approve #1 by 60s
