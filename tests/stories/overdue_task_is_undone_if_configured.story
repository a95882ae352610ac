# With `overdue undo`, an overdue task is undone. It then gets the same time again.
timing   clock skew 2s, pickup within 30s
workflow within 50s, overdue undo
  reserve: within 30s, undo
  charge:  after reserve, within 60s, undo

submit reply_to shop         => Pending; due 30s
wake                         => Processing; request reserve #1 by 30s
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 50s
clock +52s
sweep                        => Undoing because "the task was not done by its complete-by"; task by
                                162s; charge failed (failures 1, may have run, call may be in progress until
                                112s, reason kept); unlocked; due 82s; wake scheduler; wake
                                scheduler in 60s
clock +60s
wake                         => request undo of charge #1 by 162s
clock +1s
agent completes undo of charge #1
                             => charge undone (output kept); request undo of reserve #1 by 162s
agent completes undo of reserve #1
                             => Undone; reserve undone (output kept); no longer due;
                                notification to shop: undone "the task was not done by its complete-by"

# The task is Pending.
submit                       => Pending; due 143s
clock +52s
sweep                        => Undoing because "the task was not done by its complete-by"; task by
                                215s; due 195s; wake scheduler
wake                         => Undone; no longer due
