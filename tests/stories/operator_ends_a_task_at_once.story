# The last step is skipped or completed by an operator while the task is in Processing; a task that
# has done nothing yet is undone.
workflow within 10m
  reserve: within 20s, attempts 2, backoff from 60s

submit                       => Pending; due 20s
wake                         => Processing; request reserve #1 by 20s
clock +22s
sweep                        => reserve waiting until 82s (failures 1, may have run, call may be in progress
                                until 42s, reason kept); unlocked; due 112s; wake scheduler in 60s
ann skips reserve            => Processed; reserve skipped; no longer due; published: skip reserve

submit                       => Pending; due 42s
wake                         => Processing; request reserve #1 by 42s
clock +22s
sweep                        => reserve waiting until 104s (failures 1, may have run, call may be in progress
                                until 64s, reason kept); unlocked; due 134s; wake scheduler in 60s
ann completes reserve with {"id":"r-7"}
                             => Processed; reserve completed (output kept); no longer due;
                                published: complete reserve

submit                       => Pending; due 64s
wake                         => Processing; request reserve #1 by 64s
agent defers reserve #1 for 60s "breaker open"
                             => reserve waiting until 104s (reason kept); wake scheduler in 60s
# No call can be in progress any more.
clock +42s
ann undoes                   => Undone because "requested by ann: a test"; task by 686s; reserve
                                failed (may have run, call may be in progress until 86s); no longer
                                due; published: undo
