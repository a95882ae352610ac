# The request was delivered twice. One agent deferred it before a call; the other reports that its
# call may have run.
workflow within 10m
  reserve: within 60s, body ${ input.card }, then undo, undo

submit with {"card":"old"}   => Pending; due 30s
wake                         => Processing; request reserve #1 by 60s with "old"
agent defers reserve #1 for 10s "breaker open"
                             => reserve waiting until 10s (reason kept); wake scheduler in 10s
agent defers reserve #1 for 10s "breaker open", may have run
                             => reserve waiting until 10s (may have run, call may be in progress until 62s)
clock +10s
wake                         => reserve running (call may be in progress until 122s); request reserve #2 by
                                70s with "old"
agent fails reserve #2 "HTTP 422"
                             => Undoing because "step reserve: HTTP 422"; task by 722s; reserve
                                failed (failures 1, reason kept); wake scheduler in 112s

# The task is undone before the next attempt. The undo waits for the first attempt, and then for its
# call.
submit with {"card":"old"}   => Pending; due 40s
wake                         => Processing; request reserve #1 by 70s with "old"
agent defers reserve #1 for 10s "breaker open"
                             => reserve waiting until 20s (reason kept); wake scheduler in 10s
agent cuts reserve #1 "the call took longer than 5s"
                             => reserve waiting until 20s (may have run, call may be in progress until 72s)
ann undoes                   => Undoing because "requested by ann: a test"; task by 672s; reserve
                                running #1; due 70s; published: undo; wake scheduler in 62s
clock +92s
sweep                        => task by 732s; reserve failed (failures 1, call may be in progress until 132s,
                                reason kept); unlocked; due 162s; wake scheduler in 30s
clock +30s
wake                         => request undo of reserve #1 by 192s

# An edit of the input is refused.
submit with {"card":"old"}   => Pending; due 162s
wake                         => Processing; request reserve #1 by 192s with "old"
agent defers reserve #1 for 10s "breaker open"
                             => reserve waiting until 142s (reason kept); wake scheduler in 10s
agent fails reserve #1 "HTTP 302", may have run
                             => reserve waiting until 142s (may have run, call may be in progress until 194s)
ann resubmits reserve with input {"card":"new"}
                             => refused: an attempt at step reserve may have taken effect: check the
                                service, then complete the step, or resubmit it with the statement
                                that it did not run
