# A step with `then: undo` fails in Error, past the point of no return: it cannot be undone, so it is alerted.
workflow within 10m
  ship:    point of no return
  mail:    after ship
  invoice: after ship, then undo

submit                       => Pending; due 30s
wake                         => Processing; request ship #1 by 60s
agent completes ship #1      => ship completed (output kept); request mail #1 by 60s; request invoice #1 by 60s
agent fails mail #1 "no"     => Error; mail failed (failures 1, reason kept); alert mail "step mail: no"
alert sent                   => due 60s
clock +1s
agent fails invoice #1 "no"  => invoice failed (failures 1, reason kept); due 31s; alert invoice, mail "not
                                undone, past the point of no return ship: step invoice: no; step mail: no"
