# Whatever lets the next undo run finds out that its request cannot be made: the task is in Error, and
# says what is left to undo.
workflow within 10m
  check:   undo (path ${ steps.check.output.path })
  reserve: after check, within 20s, undo (within 20s, attempts 2, backoff from 60s, body ${ input.item })
  charge:  after reserve, then undo, within 20s, attempts 1
  notify:  after check, within 60s

# The step that fails.
submit with {}               => Pending; due 20s
wake                         => Processing; request check #1 by 60s
agent completes check #1 with {}
                             => check completed (output kept); request reserve #1 by 20s;
                                request notify #1 by 60s
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 20s
clock +1s
agent fails charge #1 "card declined"
                             => Error because "step charge: card declined"; task by 601s;
                                undo of reserve failed (failures 1, reason kept);
                                charge failed (failures 1, reason kept); due 31s;
                                alert: left to undo check, reserve "undo of step reserve: expression
                                `input.item`: there is no `item`"
alert sent                   => no longer due
clock +1s
ann resubmits reserve with input {"item":"tea"}
                             => Undoing; task by 602s; undo of reserve running (failures 0);
                                input {"item":"tea"} kept; due 22s;
                                request undo of reserve #2 by 22s with "tea" under key
                                o-1/reserve/undo/c-1; told: resubmit reserve with edited input
agent completes notify #1    => notify completed (output kept)
agent completes undo of reserve #2
                             => Error; undo of check failed (failures 1, reason kept);
                                reserve undone (output kept); due 32s;
                                alert: left to undo check "undo of step check: expression
                                `steps.check.output.path`: there is no `path`"
ann completes check because "done on the phone"
                             => Undone; check undone (output kept); no longer due;
                                told: complete check

# The supervisor that asks the scheduler.
submit with {}               => Pending; due 22s
wake                         => Processing; request check #1 by 62s
agent completes check #1 with {}
                             => check completed (output kept); request reserve #1 by 22s;
                                request notify #1 by 62s
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 22s
clock +22s
sweep                        => Undoing because "step charge: no reply by complete-by, attempt 1";
                                task by 624s; charge failed (failures 1, may have run, reason kept);
                                unlocked; due 54s; wake scheduler
wake                         => Error; undo of reserve failed (failures 1, reason kept);
                                alert: left to undo check, reserve "undo of step reserve: expression
                                `input.item`: there is no `item`"

# The branch that was waited for.
submit with {"item":"tea"}   => Pending; due 44s
wake                         => Processing; request check #1 by 84s
agent completes check #1 with {}
                             => check completed (output kept); request reserve #1 by 44s;
                                request notify #1 by 84s
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 44s
agent fails charge #1 "card declined"
                             => Undoing because "step charge: card declined";
                                charge failed (failures 1, reason kept);
                                request undo of reserve #1 by 44s with "tea"
agent completes undo of reserve #1
                             => reserve undone (output kept)
agent completes notify #1    => Error; undo of check failed (failures 1, reason kept);
                                notify completed (output kept); due 54s;
                                alert: left to undo check "undo of step check: expression
                                `steps.check.output.path`: there is no `path`"

submit with {"item":"tea"}   => Pending; due 44s
wake                         => Processing; request check #1 by 84s
agent completes check #1 with {}
                             => check completed (output kept); request reserve #1 by 44s;
                                request notify #1 by 84s
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 44s
agent fails charge #1 "card declined"
                             => Undoing because "step charge: card declined";
                                charge failed (failures 1, reason kept);
                                request undo of reserve #1 by 44s with "tea"
agent completes undo of reserve #1
                             => reserve undone (output kept)
clock +1s
agent fails notify #1 "no address"
                             => Error; undo of check failed (failures 1, reason kept);
                                notify failed (failures 1, reason kept); due 55s;
                                alert: left to undo check "undo of step check: expression
                                `steps.check.output.path`: there is no `path`"

# The undo of the step after it.
submit with {"item":"tea"}   => Pending; due 45s
wake                         => Processing; request check #1 by 85s
agent completes check #1 with {}
                             => check completed (output kept); request reserve #1 by 45s;
                                request notify #1 by 85s
agent completes notify #1    => notify completed (output kept)
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 45s
agent fails charge #1 "card declined"
                             => Undoing because "step charge: card declined";
                                charge failed (failures 1, reason kept);
                                request undo of reserve #1 by 45s with "tea"
clock +1s
agent completes undo of reserve #1
                             => Error; undo of check failed (failures 1, reason kept);
                                reserve undone (output kept); due 56s;
                                alert: left to undo check "undo of step check: expression
                                `steps.check.output.path`: there is no `path`"

# The operator, with a task at work, in Error, Processed, or paused.
submit with {}               => Pending; due 46s
wake                         => Processing; request check #1 by 86s
agent completes check #1 with {}
                             => check completed (output kept); request reserve #1 by 46s;
                                request notify #1 by 86s
agent completes notify #1    => notify completed (output kept)
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 46s
agent defers charge #1 for 60s "breaker open"
                             => charge waiting until 86s (reason kept); wake scheduler in 60s
clock +21s
ann undoes                   => Error because "asked for by ann: a test"; task by 647s; undo of
                                reserve failed (failures 1, reason kept); charge failed; due 77s;
                                alert: left to undo check, reserve "undo of step reserve: expression
                                `input.item`: there is no `item`"; told: undo

submit with {}               => Pending; due 67s
wake                         => Processing; request check #1 by 107s
agent completes check #1 with {}
                             => check completed (output kept); request reserve #1 by 67s; request
                                notify #1 by 107s
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 67s
agent defers charge #1 for 60s "breaker open"
                             => charge waiting until 107s (reason kept); wake scheduler in 60s
agent fails notify #1 "no address"
                             => Error; notify failed (failures 1, reason kept); due 77s; alert
                                notify "step notify: no address"
clock +21s
ann undoes                   => Error because "asked for by ann: a test"; task by 668s; undo of
                                reserve failed (failures 1, reason kept); charge failed; due 98s;
                                alert: left to undo check, reserve "undo of step reserve: expression
                                `input.item`: there is no `item`"; told: undo

submit with {}               => Pending; due 88s
wake                         => Processing; request check #1 by 128s
agent completes check #1 with {}
                             => check completed (output kept); request reserve #1 by 88s; request
                                notify #1 by 128s
agent completes notify #1    => notify completed (output kept)
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 88s
agent completes charge #1    => Processed; charge completed (output kept); no longer due
clock +1s
ann undoes                   => Error because "asked for by ann: a test"; task by 669s; undo of
                                reserve failed (failures 1, reason kept); due 99s; alert: left to
                                undo check, reserve "undo of step reserve: expression `input.item`:
                                there is no `item`"; told: undo

submit with {"item":"tea"}   => Pending; due 89s
wake                         => Processing; request check #1 by 129s
agent completes check #1 with {}
                             => check completed (output kept); request reserve #1 by 89s; request
                                notify #1 by 129s
agent completes notify #1    => notify completed (output kept)
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 89s
agent fails charge #1 "card declined"
                             => Undoing because "step charge: card declined"; charge failed
                                (failures 1, reason kept); request undo of reserve #1 by 89s with
                                "tea"
ann pauses                   => paused; told: pause
agent completes undo of reserve #1
                             => reserve undone (output kept)
clock +1s
ann resumes                  => Error; task by 670s; no longer paused; undo of check failed
                                (failures 1, reason kept); due 100s; alert: left to undo check "undo
                                of step check: expression `steps.check.output.path`: there is no
                                `path`"; told: resume

# The operator, with an undo that waits.
submit with {"item":"tea"}   => Pending; due 90s
wake                         => Processing; request check #1 by 130s
agent completes check #1 with {}
                             => check completed (output kept); request reserve #1 by 90s; request
                                notify #1 by 130s
agent completes notify #1    => notify completed (output kept)
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 90s
agent fails charge #1 "card declined"
                             => Undoing because "step charge: card declined"; charge failed
                                (failures 1, reason kept); request undo of reserve #1 by 90s with
                                "tea"
agent defers undo of reserve #1 for 60s "breaker open"
                             => undo of reserve waiting until 130s (reason kept); wake scheduler in
                                60s
clock +1s
ann resubmits with input {"item":null}
                             => Error; undo of reserve failed (failures 1, reason kept); input {}
                                kept; due 101s; alert: left to undo check, reserve "undo of step
                                reserve: expression `input.item`: there is no `item`"; told:
                                resubmit reserve with edited input

submit with {"item":"tea"}   => Pending; due 91s
wake                         => Processing; request check #1 by 131s
agent completes check #1 with {}
                             => check completed (output kept); request reserve #1 by 91s; request
                                notify #1 by 131s
agent completes notify #1    => notify completed (output kept)
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 91s
agent fails charge #1 "card declined"
                             => Undoing because "step charge: card declined"; charge failed
                                (failures 1, reason kept); request undo of reserve #1 by 91s with
                                "tea"
agent defers undo of reserve #1 for 60s "breaker open"
                             => undo of reserve waiting until 131s (reason kept); wake scheduler in
                                60s
clock +1s
ann skips reserve            => Error; undo of check failed (failures 1, reason kept); undo of
                                reserve skipped; due 102s; alert: left to undo check "undo of step
                                check: expression `steps.check.output.path`: there is no `path`";
                                told: skip reserve

submit with {"item":"tea"}   => Pending; due 92s
wake                         => Processing; request check #1 by 132s
agent completes check #1 with {}
                             => check completed (output kept); request reserve #1 by 92s; request
                                notify #1 by 132s
agent completes notify #1    => notify completed (output kept)
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 92s
agent fails charge #1 "card declined"
                             => Undoing because "step charge: card declined"; charge failed
                                (failures 1, reason kept); request undo of reserve #1 by 92s with
                                "tea"
agent defers undo of reserve #1 for 60s "breaker open"
                             => undo of reserve waiting until 132s (reason kept); wake scheduler in
                                60s
clock +1s
ann completes reserve        => Error; undo of check failed (failures 1, reason kept); reserve
                                undone (output kept); due 103s; alert: left to undo check "undo of
                                step check: expression `steps.check.output.path`: there is no
                                `path`"; told: complete reserve

# The same after the undo failed.
submit with {"item":"tea"}   => Pending; due 93s
wake                         => Processing; request check #1 by 133s
agent completes check #1 with {}
                             => check completed (output kept); request reserve #1 by 93s; request
                                notify #1 by 133s
agent completes notify #1    => notify completed (output kept)
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 93s
agent fails charge #1 "card declined"
                             => Undoing because "step charge: card declined"; charge failed
                                (failures 1, reason kept); request undo of reserve #1 by 93s with
                                "tea"
agent fails undo of reserve #1 "gone"
                             => Error; undo of reserve failed (failures 1, reason kept); due 103s;
                                alert: left to undo check, reserve "undo of step reserve: gone"
clock +1s
ann skips reserve            => task by 674s; undo of check failed (failures 1, reason kept); undo
                                of reserve skipped; due 104s; alert: left to undo check "undo of
                                step check: expression `steps.check.output.path`: there is no
                                `path`"; told: skip reserve

submit with {"item":"tea"}   => Pending; due 94s
wake                         => Processing; request check #1 by 134s
agent completes check #1 with {}
                             => check completed (output kept); request reserve #1 by 94s; request
                                notify #1 by 134s
agent completes notify #1    => notify completed (output kept)
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 94s
agent fails charge #1 "card declined"
                             => Undoing because "step charge: card declined"; charge failed
                                (failures 1, reason kept); request undo of reserve #1 by 94s with
                                "tea"
agent fails undo of reserve #1 "gone"
                             => Error; undo of reserve failed (failures 1, reason kept); due 104s;
                                alert: left to undo check, reserve "undo of step reserve: gone"
clock +1s
ann completes reserve        => task by 675s; undo of check failed (failures 1, reason kept);
                                reserve undone (output kept); due 105s; alert: left to undo check
                                "undo of step check: expression `steps.check.output.path`: there is
                                no `path`"; told: complete reserve
