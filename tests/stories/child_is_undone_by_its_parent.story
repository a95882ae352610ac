# A child is undone in any state if its parent requests it. It reports when it has no side effects any
# more.
workflow within 2h
  box:  undo
  seal: after box

submit for pack of p-1       => Pending; due 30s
parent requests undo           => Undone because "requested by task p-1"; no longer due; report to pack
                                of p-1: Undone "requested by task p-1"
parent requests undo           => ignored: Ended; again report to pack of p-1: Undone "requested by task
                                p-1"
parent requests do             => ignored: Ended; again report to pack of p-1: Undone "requested by task
                                p-1"

submit for pack of p-1       => Pending; due 30s
wake                         => Processing; request box #1 by 60s
agent completes box #1       => box completed (output kept); request seal #1 by 60s
parent requests undo           => Undoing because "requested by task p-1"; due 60s
parent requests do             => ignored: NothingReady
parent requests undo (redelivered)
                             => ignored: NothingReady
agent completes seal #1      => seal completed (output kept); request undo of box #1 by 60s
agent completes undo of box #1
                             => Undone; box undone (output kept); no longer due; report to pack of
                                p-1: Undone "requested by task p-1"

submit for pack of p-1       => Pending; due 30s
wake                         => Processing; request box #1 by 60s
agent completes box #1       => box completed (output kept); request seal #1 by 60s
agent completes seal #1      => Processed; seal completed (output kept); no longer due;
                                report to pack of p-1: Processed with null
parent requests undo         => Undoing because "requested by task p-1"; due 60s; request undo of box #1 by 60s
agent completes undo of box #1
                             => Undone; box undone (output kept); no longer due; report to pack of
                                p-1: Undone "requested by task p-1"

submit for pack of p-1       => Pending; due 30s
wake                         => Processing; request box #1 by 60s
agent completes box #1       => box completed (output kept); request seal #1 by 60s
agent fails seal #1 "no"     => Error; seal failed (failures 1, reason kept);
                                alert seal "step seal: no"; report to pack of p-1: in Error "step seal: no"
parent requests undo         => Undoing because "requested by task p-1"; due 60s; request undo of box #1 by 60s;
                                alert seal "step seal: no"
agent fails undo of box #1 "stuck"
                             => Error; undo of box failed (failures 1, reason kept); due 30s;
                                alert: left to undo box "undo of step box: stuck";
                                report to pack of p-1: in Error "undo of step box: stuck", not undone
parent requests undo           => ignored: Ended;
                                again report to pack of p-1: in Error "undo of step box: stuck", not undone
parent requests do             => ignored: Ended;
                                again report to pack of p-1: in Error "undo of step box: stuck", not undone

submit undo for pack of p-1
                             => Undone; no longer due
parent requests undo           => ignored: Ended; again report to pack of p-1: Undone "undone before it began"
parent requests do             => ignored: Ended; again report to pack of p-1: Undone "undone before it began"
wake                         => ignored: Ended

submit for pack of p-1       => Pending; due 30s
wake                         => Processing; request box #1 by 60s
agent fails box #1 "no"      => Error; box failed (failures 1, reason kept); alert box "step box: no";
                                report to pack of p-1: in Error "step box: no"
parent requests undo         => Undone because "requested by task p-1"; no longer due; alert box "step box: no";
                                report to pack of p-1: Undone "requested by task p-1"
