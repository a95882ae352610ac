# What cannot be undone says so: the undo of the other task's step fails.
workflow within 2h
  box:  point of no return
  seal: after box
  note: path /note

submit for pack of p-1       => Pending; due 30s
wake                         => Processing; request box #1 by 60s; request note #1 by 60s
agent completes box #1       => box completed (output kept); request seal #1 by 60s
asked to be undone           => Error; alert "not undone, past the point of no return box: requested
                                by task p-1"; tell pack of p-1: in Error "not undone, past the point
                                of no return box: requested by task p-1", not undone
asked to be undone           => ignored: Ended;
                                again tell pack of p-1: in Error "not undone, past the point of no return box", not undone

submit for pack of p-1       => Pending; due 30s
wake                         => Processing; request box #1 by 60s; request note #1 by 60s
agent completes box #1       => box completed (output kept); request seal #1 by 60s
agent completes seal #1      => seal completed (output kept)
agent completes note #1      => Processed; note completed (output kept); no longer due;
                                tell pack of p-1: Processed with null
asked to be undone           => ignored: Ended;
                                again tell pack of p-1: in Error "not undone, past the point of no return box", not undone
