# A wait starts when the previous steps are complete. The scheduler detects its end.
workflow within 1h
  order: undo
  cool:  after order, wait 10m
  ship:  after cool, body ${ steps.cool.output }, then undo

submit                       => Pending; due 30s
wake                         => Processing; request order #1 by 60s
clock +5s
agent completes order #1     => order completed (output kept); cool waiting until 605s;
                                wake scheduler in 600s
wake                         => ignored: NothingReady
clock +600s
wake                         => cool completed; request ship #1 by 665s with null
agent fails ship #1 "no"     => Undoing because "step ship: no"; task by 4205s;
                                ship failed (failures 1, reason kept); request undo of order #1 by 665s
