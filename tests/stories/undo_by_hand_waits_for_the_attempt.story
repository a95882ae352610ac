# An operator cannot undo a step by hand while an attempt is with an agent: it may still complete.
workflow within 10m
  reserve: within 20s, attempts 3, backoff from 1s, then undo, undo
  notify:  within 300s, then undo

submit => Pending; due 20s
wake                         => Processing; request reserve #1 by 20s; request notify #1 by 300s
agent cuts reserve #1 "slow" => reserve waiting until 1s (failures 1, may have run, call may be in progress until 42s, reason kept); wake scheduler in 1s
clock +1s
wake                         => request reserve #2 by 21s
agent fails notify #1 "no"   => Undoing because "step notify: no"; task by 642s; notify failed (failures 1, reason kept); wake scheduler in 41s
ann completes reserve        => refused: step reserve is running: wait for its outcome
agent completes reserve #2   => reserve completed (output kept)
ann completes reserve        => refused: a call of step reserve may be in progress until 1970-01-01T00:00:42Z: wait until then
clock +45s
wake                         => request undo of reserve #1 by 106s
