# Each step completes in time, the next one starts, and the last one ends the task. The due time is
# written only when the task is recorded and removed at the end.
timing   clock skew 2s, pickup within 30s
workflow within 10m
  reserve: within 40s, body ${ input.items }
  charge:  after reserve, within 40s, path /charges/${ input.customer },
           body {"reservation": "${ steps.reserve.output.id }", "reason": "order ${ task.id }"}
  ship:    after charge, within 60s, body {"reservation": "${ steps.reserve.output.id }"}

submit with {"customer":"c-7","items":["tea"]}
                             => Pending; due 30s
clock +1s
wake                         => Processing; request reserve #1 by 41s with ["tea"]
clock +1s
agent completes reserve #1 with {"id":"r-1"}
                             => reserve completed (output kept);
                                request charge #1 by 42s at /charges/c-7
                                with {"reservation":"r-1","reason":"order o-1"}
clock +1s
agent completes charge #1    => charge completed (output kept); request ship #1 by 63s
                                with {"reservation":"r-1"}
clock +1s
agent completes ship #1      => Processed; ship completed (output kept); no longer due
