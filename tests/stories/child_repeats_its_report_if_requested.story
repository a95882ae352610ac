# The parent repeats its request. It acts as a wake while the child is not in a final state; after the
# end the child reports its outcome again.
workflow within 2h, output {"n":"${ input.n }"}
  box: body ${ input.n }

submit for pack of p-1 with {"n":1}
                             => Pending; due 30s
parent requests do             => Processing; request box #1 by 60s with 1
parent requests do             => ignored: NothingReady
parent requests do (redelivered)
                             => ignored: NothingReady; again request box #1 by 60s with 1
agent completes box #1       => Processed; box completed (output kept); returns {"n":1}; no longer due;
                                report to pack of p-1: Processed with {"n":1}
agent completes box #1 (redelivered)
                             => ignored: DuplicateReply; again report to pack of p-1: Processed with {"n":1}
parent requests do             => ignored: Ended; again report to pack of p-1: Processed with {"n":1}

submit for pack of p-1       => Pending; due 30s
parent requests do             => Error; box failed (failures 1, reason kept);
                                alert box "step box: expression `input.n`: there is no `n`";
                                report to pack of p-1: in Error "step box: expression `input.n`: there is no `n`"
parent requests do             => ignored: Ended;
                                again report to pack of p-1: in Error "step box: expression `input.n`: there is no `n`"
