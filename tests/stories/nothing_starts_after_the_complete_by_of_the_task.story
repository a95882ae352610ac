# After the task's complete-by no one may act on it. A late scheduler starts nothing, and the
# supervisor ends the task.
timing   clock skew 2s, pickup within 30s
workflow within 50s
  reserve: within 30s

submit                       => Pending; due 30s
clock +50s
wake                         => ignored: NothingReady
clock +2s
sweep                        => Error; due 82s; alert "the task was not done by its complete-by"
