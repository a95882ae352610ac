# Clocks may differ by the skew, so the supervisor counts no failure at complete-by. It waits for the
# skew.
timing   clock skew 5s, pickup within 30s
workflow within 10m
  reserve: within 20s, attempts 2
  charge:  after reserve, within 25s, attempts 2

submit                       => Pending; due 20s
wake                         => Processing; request reserve #1 by 20s
clock +20s
sweep                        => ignored: NotDue
clock +4.999s
sweep                        => ignored: NotDue
clock +0.001s
sweep                        => reserve waiting (failures 1, may have run, call may be in progress until 45s,
                                reason kept); unlocked; due 55s; wake scheduler

# A second task: its due time is earlier than the complete-by of its second step.
submit                       => Pending; due 45s
wake                         => Processing; request reserve #1 by 45s
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 50s
clock +25s
sweep                        => due 50s
clock +4.999s
sweep                        => ignored: NotDue
clock +0.001s
sweep                        => charge waiting (failures 1, may have run, call may be in progress until 80s,
                                reason kept); unlocked; due 85s; wake scheduler
