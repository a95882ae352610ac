# A sweep fails a step, and the supervisor crashes before it publishes that. No message is redelivered, but the task is still
# due: the next sweep publishes the failure again.
workflow within 10m, with lifecycle events
  reserve: undo
  charge:  after reserve, within 30s, attempts 1, then undo

submit                       => Pending; due 30s
wake                         => Processing; request reserve #1 by 60s; event: submitted
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 30s;
                                event: reserve #1 completed
clock +32s
sweep                        => Undoing because "step charge: no reply by complete-by, attempt 1";
                                task by 662s; charge failed (failures 1, may have run, call may
                                be in progress until 62s, reason kept); unlocked; due 92s;
                                event: charge #1 failed, may have run; wake scheduler in 30s
clock +63s
sweep                        => due 125s; event: charge #1 failed, may have run; wake scheduler
wake                         => request undo of reserve #1 by 155s
agent completes undo of reserve #1
                             => Undone; reserve undone (output kept); no longer due; event: undone

# A task in Error stays due until its alert is recorded as sent. The failure is published again with the alert.
submit                       => Pending; due 125s
wake                         => Processing; request reserve #1 by 155s; event: submitted
agent fails reserve #1 "no stock"
                             => Error; reserve failed (failures 1, reason kept); alert reserve "step reserve: no stock";
                                event: error; event: reserve #1 failed
clock +32s
sweep                        => due 157s; alert reserve "step reserve: no stock"; event: error;
                                event: reserve #1 failed

# The supervisor stops a task that no scheduler started.
submit                       => Pending; due 157s
clock +33s
sweep                        => due 190s; wake scheduler
clock +571s
sweep                        => Error; due 761s; alert "the task was not done by its complete-by"; event: error;
                                event: submitted
clock +32s
sweep                        => due 793s; alert "the task was not done by its complete-by"; event: error;
                                event: submitted
alert sent                   => no longer due
