# A child that cannot be undone reports that, and the undo of the parent's step fails.
workflow within 2h
  box:  point of no return
  seal: after box
  note: path /note

submit for pack of p-1       => Pending; due 30s
wake                         => Processing; request box #1 by 60s; request note #1 by 60s
agent completes box #1       => box completed (output kept); request seal #1 by 60s
parent requests undo           => Error; alert "not undone, past the point of no return box: requested
                                by task p-1"; report to pack of p-1: in Error "not undone, past the
                                point of no return box: requested by task p-1", not undone
parent requests undo           => ignored: Ended;
                                again report to pack of p-1: in Error "not undone, past the point of no return box", not undone

submit for pack of p-1       => Pending; due 30s
wake                         => Processing; request box #1 by 60s; request note #1 by 60s
agent completes box #1       => box completed (output kept); request seal #1 by 60s
agent completes seal #1      => seal completed (output kept)
agent completes note #1      => Processed; note completed (output kept); no longer due;
                                report to pack of p-1: Processed with null
parent requests undo           => ignored: Ended;
                                again report to pack of p-1: in Error "not undone, past the point of no return box", not undone
