# The supervisor's wake for the recovery is lost. The waiting step is due too, and the failure is not
# counted again.
timing   clock skew 2s, pickup within 30s
workflow within 10m
  reserve: within 20s, attempts 2

submit                       => Pending; due 20s
wake                         => Processing; request reserve #1 by 20s
clock +22s
sweep                        => reserve waiting (failures 1, may have run, call may be in progress until 42s,
                                reason kept); unlocked; due 52s; wake scheduler
clock +31s
sweep                        => ignored: NotDue
clock +1s
sweep                        => due 84s; wake scheduler
wake                         => due 74s; request reserve #2 by 74s
agent completes reserve #2   => Processed; reserve completed (output kept); no longer due
