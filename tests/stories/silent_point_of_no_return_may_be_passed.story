# A silent attempt at the point of no return may have passed it, so nothing is undone.
workflow within 10m
  reserve: undo
  ship:    after reserve, within 20s, attempts 1, point of no return, then undo

submit                       => Pending; due 20s
wake                         => Processing; request reserve #1 by 60s
agent completes reserve #1   => reserve completed (output kept); request ship #1 by 20s
clock +22s
sweep                        => Error; ship failed (failures 1, may have run, call may be in progress until
                                42s, reason kept); due 52s; alert ship "not undone, past the point
                                of no return ship: step ship: no reply by complete-by, attempt 1"
ann completes with {"parcel":7} because "the parcel is on its way"
                             => Processed; task by 622s; ship completed (output kept); published: complete ship
