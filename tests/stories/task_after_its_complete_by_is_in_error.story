# A task has its own complete-by. No attempt ends after it, and after it the task is in Error,
# although attempts are left.
timing   clock skew 2s, pickup within 30s
workflow within 50s
  reserve: within 30s, attempts 9
  charge:  after reserve, within 30s, attempts 9

submit                       => Pending; due 30s
wake                         => Processing; request reserve #1 by 30s
clock +25s
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 50s
clock +27s
sweep                        => Error; charge waiting (failures 1, may have run, call may be in progress until
                                82s, reason kept); due 82s; alert "the task was not done by its
                                complete-by"
wake => ignored: NothingReady

# The same for a Pending task.
submit                       => Pending; due 82s
clock +32s
sweep                        => due 102s; wake scheduler
clock +20s
sweep                        => Error; due 134s; alert "the task was not done by its complete-by"
wake => ignored: NothingReady

# The same for a task that waits for the scheduler.
submit                       => Pending; due 134s
wake                         => Processing; request reserve #1 by 134s
clock +32s
sweep                        => reserve waiting (failures 1, may have run, call may be in progress until 166s,
                                reason kept); unlocked; due 154s; wake scheduler
clock +20s
sweep                        => Error; due 186s; alert "the task was not done by its complete-by"
