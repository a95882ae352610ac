# The due time may be earlier than the actual complete-by. A sweep at that time only moves the due
# time.
timing   clock skew 2s, pickup within 30s
workflow within 10m
  reserve: within 30s
  charge:  after reserve, within 60s

submit                       => Pending; due 30s
wake                         => Processing; request reserve #1 by 30s
clock +10s
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 70s
clock +22s
sweep                        => due 70s
clock +32s
sweep                        => ignored: NotDue
agent completes charge #1    => Processed; charge completed (output kept); no longer due
