# A step cannot be stated not to have run, and not be undone by hand, while a call of it may be in progress.
workflow within 10m
  reserve: within 20s, attempts 1, then undo, undo

submit => Pending; due 20s
wake                         => Processing; request reserve #1 by 20s
agent cuts reserve #1 "slow" => Undoing because "step reserve: slow, attempt 1"; task by 642s; reserve failed (failures 1, may have run, call may be in progress until 42s, reason kept); wake scheduler in 42s
ann skips reserve, it did not run => refused: a call of step reserve may be in progress until 1970-01-01T00:00:42Z: wait until then
ann completes reserve        => refused: a call of step reserve may be in progress until 1970-01-01T00:00:42Z: wait until then
clock +45s
ann skips reserve, it did not run => Undone; undo of reserve skipped; no longer due; published: skip reserve
