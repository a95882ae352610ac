# Requests have the same limit. A larger request is not sent.
workflow
  reserve: within 60s
  charge:  after reserve, within 60s, body ["${ steps.reserve.output }",
           "${ steps.reserve.output }"]

submit                       => Pending; due 30s
wake                         => Processing; request reserve #1 by 60s
clock +1s
agent completes reserve #1 with 70000 bytes
                             => Error; reserve completed (output kept);
                                charge failed (failures 1, reason kept); due 31s; alert charge
                                "step charge: a request of 140010 bytes; the limit is 131072"
