# A step with `fail` is a way out of a workflow: it fails when its turn comes, and its policy applies.
workflow within 10m
  check: undo (path /free)
  refuse: after check, when ${ !steps.check.output.ok }, fails with the check refused the order, then undo
  ship: after refuse

submit                       => Pending; due 30s
wake                         => Processing; request check #1 by 60s
agent completes check #1 with {"ok":false}
                             => Undoing because "step refuse: the check refused the order"; check completed (output kept);
                                refuse failed (failures 1, reason kept); wake scheduler
wake                         => request undo of check #1 by 60s at /free
agent completes undo of check #1
                             => Undone; check undone (output kept); no longer due
