# A lost wake delays a task but does not block it: a Pending task is due too.
timing   clock skew 2s, pickup within 30s
workflow within 10m
  reserve: within 60s

submit                       => Pending; due 30s
clock +31s
sweep                        => ignored: NotDue
clock +1s
sweep                        => due 62s; wake scheduler

# That wake is lost too.
clock +32s
sweep                        => due 94s; wake scheduler
clock +1s
wake                         => Processing; request reserve #1 by 125s
