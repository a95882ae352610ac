# A child task without anything to undo is Undone as soon as its parent requests the undo.
workflow within 2h
  box: path /box

submit for pack of p-1       => Pending; due 30s
wake                         => Processing; request box #1 by 60s
agent completes box #1       => Processed; box completed (output kept); no longer due;
                                report to pack of p-1: Processed with null
parent requests undo           => Undone because "requested by task p-1"; report to pack of p-1: Undone
                                "requested by task p-1"

submit for pack of p-1       => Pending; due 30s
wake                         => Processing; request box #1 by 60s
clock +62s
sweep                        => box waiting (failures 1, may have run, call may be in progress until 122s,
                                reason kept); unlocked; due 92s; wake scheduler
# No call can be in progress any more.
clock +60s
parent requests undo           => Undone because "requested by task p-1"; task by 7322s; box failed; no
                                longer due; report to pack of p-1: Undone "requested by task p-1"
