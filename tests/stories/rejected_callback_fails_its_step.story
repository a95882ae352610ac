# An operator rejects: the step fails with the operator's reason, and is undone although it was not approved.
workflow within 2h
  check:   within 60s, undo
  approve: after check, callback within 1h, body ${ callback.token }, then undo

submit                       => Pending; due 30s
wake                         => Processing; request check #1 by 60s
agent completes check #1     => check completed (output kept); request approve #1 by 60s with "o-1/approve/i000000000"
agent completes approve #1   => approve awaiting callback until 3600s
ann rejects because "too expensive"
                             => Undoing because "step approve: rejected by ann: too expensive";
                                approve failed (failures 1, may have run, reason kept); due 60s;
                                request undo of check #1 by 60s; published: reject approve
