# All steps are complete; an operator corrects the input, or undoes them.
workflow within 10m, output ${ input.to.name }
  ship: undo

submit with {"to":"Ada"}     => Pending; due 30s
wake                         => Processing; request ship #1 by 60s
agent completes ship #1      => Error; ship completed (output kept);
                                alert "output: expression `input.to.name`: there is no `name`"
ann skips ship because "it is done"
                             => refused: step ship is completed
ann resubmits with input {"to":{"name":"Ada"}} because "a typo"
                             => Processed; input {"to":{"name":"Ada"}} kept; returns "Ada"; published: resubmit
                                with edited input

submit with {"to":"Ada"}     => Pending; due 30s
wake                         => Processing; request ship #1 by 60s
agent completes ship #1      => Error; ship completed (output kept);
                                alert "output: expression `input.to.name`: there is no `name`"
ann undoes because "no idea" => Undoing because "requested by ann: no idea"; due 60s; request undo of
                                ship #1 by 60s; published: undo
