# The task that it runs for asks again: as a wake while it goes on, and once it has ended it tells how.
workflow within 2h, output {"n":"${ input.n }"}
  box: body ${ input.n }

submit for pack of p-1 with {"n":1}
                             => Pending; due 30s
asked to be done             => Processing; request box #1 by 60s with 1
asked to be done             => ignored: NothingReady
asked to be done (redelivered)
                             => ignored: NothingReady; again request box #1 by 60s with 1
agent completes box #1       => Processed; box completed (output kept); returns {"n":1}; no longer due;
                                tell pack of p-1: Processed with {"n":1}
agent completes box #1 (redelivered)
                             => ignored: DuplicateReply; again tell pack of p-1: Processed with {"n":1}
asked to be done             => ignored: Ended; again tell pack of p-1: Processed with {"n":1}

submit for pack of p-1       => Pending; due 30s
asked to be done             => Error; box failed (failures 1, reason kept);
                                alert box "step box: expression `input.n`: there is no `n`";
                                tell pack of p-1: in Error "step box: expression `input.n`: there is no `n`"
asked to be done             => ignored: Ended;
                                again tell pack of p-1: in Error "step box: expression `input.n`: there is no `n`"
