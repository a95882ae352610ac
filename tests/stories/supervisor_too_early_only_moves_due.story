# The due time may be earlier than the real complete-by: the supervisor that looks too early moves
# it, and nothing else.
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
