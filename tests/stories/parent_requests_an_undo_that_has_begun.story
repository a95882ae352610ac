# A parent requests the undo of a child task that is paused, or that is being undone for another reason. Then the request
# acts as a wake.
workflow within 10m
  plain:   within 30s, attempts 1, then undo
  reserve: after plain, within 30s, attempts 1, then undo, undo

# The task has not begun.
submit for pack of p-1       => Pending; due 30s
ann pauses                   => paused; due 3600s; published: pause
parent requests undo         => Undoing because "requested by task p-1"
ann resumes                  => Undone; no longer paused; no longer due; published: resume;
                                report to pack of p-1: Undone "requested by task p-1"

# The call of the failed step is over, and the step has an undo.
submit for pack of p-1       => Pending; due 30s
wake                         => Processing; request plain #1 by 30s
agent completes plain #1     => plain completed (output kept); request reserve #1 by 30s
agent fails reserve #1 "no", may have run
                             => Undoing because "step reserve: no"; task by 662s;
                                reserve failed (failures 1, may have run, call may be in progress until 62s, reason kept);
                                wake scheduler in 62s
clock +2m
parent requests undo         => request undo of reserve #1 by 180s
agent completes undo of reserve #1
                             => Undone; reserve undone (output kept); no longer due;
                                report to pack of p-1: Undone "step reserve: no"

# The call of the failed step is over, and the step has no undo.
submit for pack of p-1       => Pending; due 150s
wake                         => Processing; request plain #1 by 150s
agent fails plain #1 "no", may have run
                             => Undoing because "step plain: no"; task by 782s;
                                plain failed (failures 1, may have run, call may be in progress until 182s, reason kept);
                                wake scheduler in 62s
clock +2m
parent requests undo         => Undone; no longer due; report to pack of p-1: Undone "step plain: no"
