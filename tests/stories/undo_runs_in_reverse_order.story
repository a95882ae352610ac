# Undo runs in reverse order: a step is undone when all later steps are undone. A step without an undo
# is passed over.
workflow within 10m
  check:   within 60s
  reserve: after check, undo (path /release, body ${ steps.check.output.by })
  notify:  after reserve
  charge:  after notify, undo (within 20s, path /refunds/${ steps.charge.output.id })
  ship:    after charge, then undo

submit with {"item":"tea"}   => Pending; due 30s
wake                         => Processing; request check #1 by 60s
agent completes check #1 with {"by":"Ida"}
                             => check completed (output kept); request reserve #1 by 60s
agent completes reserve #1   => reserve completed (output kept); request notify #1 by 60s
agent completes notify #1    => notify completed (output kept); request charge #1 by 60s
clock +10s
agent completes charge #1 with {"id":"ch-1"}
                             => charge completed (output kept); request ship #1 by 70s
clock +10s
agent fails ship #1 "no lorry"
                             => Undoing because "step ship: no lorry"; task by 620s;
                                ship failed (failures 1, reason kept);
                                request undo of charge #1 by 40s at /refunds/ch-1
clock +1s
agent completes undo of charge #1
                             => charge undone (output kept);
                                request undo of reserve #1 by 81s at /release with "Ida"
clock +1s
agent completes undo of reserve #1
                             => Undone; reserve undone (output kept); no longer due
