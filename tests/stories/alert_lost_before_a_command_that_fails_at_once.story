# The sender of an alert dies. A command continues the task, which stops again in the same decision: both alerts are sent.
workflow within 10m
  charge: when ${ input.pay }
  ship:   after charge, path /${ steps.charge.output.id }

submit with {"pay":true}     => Pending; due 30s
wake                         => Processing; request charge #1 by 60s
agent fails charge #1 "no"   => Error; charge failed (failures 1, reason kept); alert charge "step charge: no"
alert lost
ann skips charge             => charge skipped; ship failed (failures 1, reason kept); alert ship "step ship:
                                expression `steps.charge.output.id`: there is no `id`"; alert charge "step
                                charge: no"; published: skip charge
