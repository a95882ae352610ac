# A step completes at the task's complete-by, which still counts as in time, and nothing more starts.
# A scheduler whose clock is behind may still start the next step if its request can be created.
timing   clock skew 2s, pickup within 30s
workflow within 50s
  reserve: within 50s
  charge:  after reserve, path ${ steps.reserve.output.path }

submit                       => Pending; due 30s
wake                         => Processing; request reserve #1 by 50s
clock +50s
agent completes reserve #1 with {"path":"/charges/7"}
                             => reserve completed (output kept)
clock -1s
wake                         => request charge #1 by 50s at /charges/7

submit                       => Pending; due 79s
wake                         => Processing; request reserve #1 by 99s
clock +50s
agent completes reserve #1 with {}
                             => reserve completed (output kept)
clock -1s
wake                         => Error; charge failed (failures 1, reason kept); due 128s;
                                alert charge "step charge: expression `steps.reserve.output.path`:
                                there is no `path`"
