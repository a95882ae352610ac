# Asked to be undone it is, in whatever state; and tells when nothing of it stands.
workflow within 2h
  box:  undo
  seal: after box

submit for pack of p-1       => Pending; due 30s
asked to be undone           => Undone because "requested by task p-1"; no longer due; tell pack of
                                p-1: Undone "requested by task p-1"
asked to be undone           => ignored: Ended; again tell pack of p-1: Undone "requested by task
                                p-1"
asked to be done             => ignored: Ended; again tell pack of p-1: Undone "requested by task
                                p-1"

submit for pack of p-1       => Pending; due 30s
wake                         => Processing; request box #1 by 60s
agent completes box #1       => box completed (output kept); request seal #1 by 60s
asked to be undone           => Undoing because "requested by task p-1"; due 60s
asked to be done             => ignored: NothingReady
asked to be undone (redelivered)
                             => ignored: NothingReady
agent completes seal #1      => seal completed (output kept); request undo of box #1 by 60s
agent completes undo of box #1
                             => Undone; box undone (output kept); no longer due; tell pack of p-1:
                                Undone "requested by task p-1"

submit for pack of p-1       => Pending; due 30s
wake                         => Processing; request box #1 by 60s
agent completes box #1       => box completed (output kept); request seal #1 by 60s
agent completes seal #1      => Processed; seal completed (output kept); no longer due;
                                tell pack of p-1: Processed with null
asked to be undone           => Undoing because "requested by task p-1"; due 60s; request undo of
                                box #1 by 60s
agent completes undo of box #1
                             => Undone; box undone (output kept); no longer due; tell pack of p-1:
                                Undone "requested by task p-1"

submit for pack of p-1       => Pending; due 30s
wake                         => Processing; request box #1 by 60s
agent completes box #1       => box completed (output kept); request seal #1 by 60s
agent fails seal #1 "no"     => Error; seal failed (failures 1, reason kept);
                                alert seal "step seal: no"; tell pack of p-1: in Error "step seal: no"
asked to be undone           => Undoing because "requested by task p-1"; due 60s; request undo of
                                box #1 by 60s
agent fails undo of box #1 "stuck"
                             => Error; undo of box failed (failures 1, reason kept); due 30s;
                                alert: left to undo box "undo of step box: stuck";
                                tell pack of p-1: in Error "undo of step box: stuck", not undone
asked to be undone           => ignored: Ended;
                                again tell pack of p-1: in Error "undo of step box: stuck", not undone
asked to be done             => ignored: Ended;
                                again tell pack of p-1: in Error "undo of step box: stuck", not undone

submit to be undone for pack of p-1
                             => Undone; no longer due
asked to be undone           => ignored: Ended; again tell pack of p-1: Undone "undone before it began"
asked to be done             => ignored: Ended; again tell pack of p-1: Undone "undone before it began"
wake                         => ignored: Ended

submit for pack of p-1       => Pending; due 30s
wake                         => Processing; request box #1 by 60s
agent fails box #1 "no"      => Error; box failed (failures 1, reason kept); alert box "step box: no";
                                tell pack of p-1: in Error "step box: no"
asked to be undone           => Undone because "requested by task p-1"; no longer due; tell pack of
                                p-1: Undone "requested by task p-1"
