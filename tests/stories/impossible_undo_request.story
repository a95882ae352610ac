# Every event that starts the next undo detects that its request cannot be created. The task is then
# in Error, and the alert names the parts that are left to undo.
workflow within 10m
  check:   undo (path ${ steps.check.output.path })
  reserve: after check, within 20s, undo (within 20s, attempts 2, backoff from 60s, body ${ input.item })
  charge:  after reserve, then undo, within 20s, attempts 1
  notify:  after check, within 60s

# A step fails.
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
alert sent => due 60s
clock +1s
ann resubmits reserve with input {"item":"tea"}
                             => Undoing; task by 602s; undo of reserve running (failures 0);
                                input {"item":"tea"} kept; due 22s;
                                request undo of reserve #2 by 22s with "tea" under key
                                o-1/reserve/undo/c-1; published: resubmit reserve with edited input
agent completes notify #1    => notify completed (output kept)
agent completes undo of reserve #2
                             => Error; undo of check failed (failures 1, reason kept);
                                reserve undone (output kept); due 32s;
                                alert: left to undo check "undo of step check: expression
                                `steps.check.output.path`: there is no `path`"
ann completes check because "done on the phone"
                             => Undone; check undone (output kept); published: complete check

# The supervisor wakes the scheduler.
submit with {}               => Pending; due 22s
wake                         => Processing; request check #1 by 62s
agent completes check #1 with {}
                             => check completed (output kept); request reserve #1 by 22s;
                                request notify #1 by 62s
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 22s
clock +22s
sweep                        => Undoing because "step charge: no reply by complete-by, attempt 1";
                                task by 644s; charge failed (failures 1, may have run, call may be in progress
                                until 44s, reason kept); unlocked; due 62s; wake scheduler in 20s
clock +20s
wake => Error; undo of reserve failed (failures 1, reason kept); alert: left to undo check, reserve "undo of step reserve: expression `input.item`: there is no `item`"

# A branch that the undo waited for replies.
submit with {"item":"tea"}   => Pending; due 64s
wake                         => Processing; request check #1 by 104s
agent completes check #1 with {}
                             => check completed (output kept); request reserve #1 by 64s; request
                                notify #1 by 104s
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 64s
agent fails charge #1 "card declined"
                             => Undoing because "step charge: card declined"; charge failed
                                (failures 1, reason kept); request undo of reserve #1 by 64s with
                                "tea"
agent completes undo of reserve #1
                             => reserve undone (output kept)
agent completes notify #1    => Error; undo of check failed (failures 1, reason kept); notify
                                completed (output kept); due 74s; alert: left to undo check "undo of
                                step check: expression `steps.check.output.path`: there is no
                                `path`"

submit with {"item":"tea"}   => Pending; due 64s
wake                         => Processing; request check #1 by 104s
agent completes check #1 with {}
                             => check completed (output kept); request reserve #1 by 64s; request
                                notify #1 by 104s
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 64s
agent fails charge #1 "card declined"
                             => Undoing because "step charge: card declined"; charge failed
                                (failures 1, reason kept); request undo of reserve #1 by 64s with
                                "tea"
agent completes undo of reserve #1
                             => reserve undone (output kept)
clock +1s
agent fails notify #1 "no address"
                             => Error; undo of check failed (failures 1, reason kept); notify failed
                                (failures 1, reason kept); due 75s; alert: left to undo check "undo
                                of step check: expression `steps.check.output.path`: there is no
                                `path`"

# The undo of the later step completes.
submit with {"item":"tea"}   => Pending; due 65s
wake                         => Processing; request check #1 by 105s
agent completes check #1 with {}
                             => check completed (output kept); request reserve #1 by 65s; request
                                notify #1 by 105s
agent completes notify #1    => notify completed (output kept)
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 65s
agent fails charge #1 "card declined"
                             => Undoing because "step charge: card declined"; charge failed
                                (failures 1, reason kept); request undo of reserve #1 by 65s with
                                "tea"
clock +1s
agent completes undo of reserve #1
                             => Error; undo of check failed (failures 1, reason kept); reserve
                                undone (output kept); due 76s; alert: left to undo check "undo of
                                step check: expression `steps.check.output.path`: there is no
                                `path`"

# An operator undoes a task in Processing, Error, Processed, or a paused one.
submit with {}               => Pending; due 66s
wake                         => Processing; request check #1 by 106s
agent completes check #1 with {}
                             => check completed (output kept); request reserve #1 by 66s; request
                                notify #1 by 106s
agent completes notify #1    => notify completed (output kept)
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 66s
agent defers charge #1 for 60s "breaker open"
                             => charge waiting until 106s (reason kept); wake scheduler in 60s
clock +42s
ann undoes                   => Error because "requested by ann: a test"; task by 688s; undo of
                                reserve failed (failures 1, reason kept); charge failed (may have
                                run, call may be in progress until 88s); due 118s; alert: left to undo check,
                                reserve "undo of step reserve: expression `input.item`: there is no
                                `item`"; published: undo

submit with {}               => Pending; due 108s
wake                         => Processing; request check #1 by 148s
agent completes check #1 with {}
                             => check completed (output kept); request reserve #1 by 108s; request
                                notify #1 by 148s
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 108s
agent defers charge #1 for 60s "breaker open"
                             => charge waiting until 148s (reason kept); wake scheduler in 60s
agent fails notify #1 "no address"
                             => Error; notify failed (failures 1, reason kept); due 118s; alert
                                notify "step notify: no address"
clock +42s
ann undoes                   => Error because "requested by ann: a test"; task by 730s; undo of
                                reserve failed (failures 1, reason kept); charge failed (may have
                                run, call may be in progress until 130s); due 160s; alert: left to undo check,
                                reserve "undo of step reserve: expression `input.item`: there is no
                                `item`"; published: undo

submit with {}               => Pending; due 150s
wake                         => Processing; request check #1 by 190s
agent completes check #1 with {}
                             => check completed (output kept); request reserve #1 by 150s; request
                                notify #1 by 190s
agent completes notify #1    => notify completed (output kept)
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 150s
agent completes charge #1    => Processed; charge completed (output kept); no longer due
clock +1s
ann undoes                   => Error because "requested by ann: a test"; task by 731s; undo of
                                reserve failed (failures 1, reason kept); due 161s; alert: left to
                                undo check, reserve "undo of step reserve: expression `input.item`:
                                there is no `item`"; published: undo

submit with {"item":"tea"}   => Pending; due 151s
wake                         => Processing; request check #1 by 191s
agent completes check #1 with {}
                             => check completed (output kept); request reserve #1 by 151s; request
                                notify #1 by 191s
agent completes notify #1    => notify completed (output kept)
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 151s
agent fails charge #1 "card declined"
                             => Undoing because "step charge: card declined"; charge failed
                                (failures 1, reason kept); request undo of reserve #1 by 151s with
                                "tea"
ann pauses                   => paused; published: pause
agent completes undo of reserve #1
                             => reserve undone (output kept)
clock +1s
ann resumes                  => Error; task by 732s; no longer paused; undo of check failed
                                (failures 1, reason kept); due 162s; alert: left to undo check "undo
                                of step check: expression `steps.check.output.path`: there is no
                                `path`"; published: resume

# An operator resubmits an undo that waits.
submit with {"item":"tea"}   => Pending; due 152s
wake                         => Processing; request check #1 by 192s
agent completes check #1 with {}
                             => check completed (output kept); request reserve #1 by 152s; request
                                notify #1 by 192s
agent completes notify #1    => notify completed (output kept)
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 152s
agent fails charge #1 "card declined"
                             => Undoing because "step charge: card declined"; charge failed
                                (failures 1, reason kept); request undo of reserve #1 by 152s with
                                "tea"
agent defers undo of reserve #1 for 60s "breaker open"
                             => undo of reserve waiting until 192s (reason kept); wake scheduler in
                                60s
clock +42s
ann resubmits with input {"item":null}, it did not run
                             => Error; undo of reserve failed (failures 1, reason kept); input {}
                                kept; due 204s; alert: left to undo check, reserve "undo of step
                                reserve: expression `input.item`: there is no `item`"; published:
                                resubmit reserve with edited input

submit with {"item":"tea"}   => Pending; due 194s
wake                         => Processing; request check #1 by 234s
agent completes check #1 with {}
                             => check completed (output kept); request reserve #1 by 194s; request
                                notify #1 by 234s
agent completes notify #1    => notify completed (output kept)
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 194s
agent fails charge #1 "card declined"
                             => Undoing because "step charge: card declined"; charge failed
                                (failures 1, reason kept); request undo of reserve #1 by 194s with
                                "tea"
agent defers undo of reserve #1 for 60s "breaker open"
                             => undo of reserve waiting until 234s (reason kept); wake scheduler in
                                60s
clock +42s
ann skips reserve            => Error; undo of check failed (failures 1, reason kept); undo of
                                reserve skipped (may have run, call may be in progress until 216s); due 246s;
                                alert: left to undo check "undo of step check: expression
                                `steps.check.output.path`: there is no `path`"; published: skip reserve

submit with {"item":"tea"}   => Pending; due 236s
wake                         => Processing; request check #1 by 276s
agent completes check #1 with {}
                             => check completed (output kept); request reserve #1 by 236s; request
                                notify #1 by 276s
agent completes notify #1    => notify completed (output kept)
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 236s
agent fails charge #1 "card declined"
                             => Undoing because "step charge: card declined"; charge failed
                                (failures 1, reason kept); request undo of reserve #1 by 236s with
                                "tea"
agent defers undo of reserve #1 for 60s "breaker open"
                             => undo of reserve waiting until 276s (reason kept); wake scheduler in
                                60s
clock +42s
ann completes reserve        => Error; undo of check failed (failures 1, reason kept); reserve
                                undone (call may be in progress until 258s, output kept); due 288s; alert:
                                left to undo check "undo of step check: expression
                                `steps.check.output.path`: there is no `path`"; published: complete
                                reserve

# The same after the undo failed.
submit with {"item":"tea"}   => Pending; due 278s
wake                         => Processing; request check #1 by 318s
agent completes check #1 with {}
                             => check completed (output kept); request reserve #1 by 278s; request
                                notify #1 by 318s
agent completes notify #1    => notify completed (output kept)
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 278s
agent fails charge #1 "card declined"
                             => Undoing because "step charge: card declined"; charge failed
                                (failures 1, reason kept); request undo of reserve #1 by 278s with
                                "tea"
agent fails undo of reserve #1 "gone"
                             => Error; undo of reserve failed (failures 1, reason kept); due 288s;
                                alert: left to undo check, reserve "undo of step reserve: gone"
clock +1s
ann skips reserve            => task by 859s; undo of check failed (failures 1, reason kept); undo
                                of reserve skipped; due 289s; alert: left to undo check "undo of
                                step check: expression `steps.check.output.path`: there is no
                                `path`"; published: skip reserve

submit with {"item":"tea"}   => Pending; due 279s
wake                         => Processing; request check #1 by 319s
agent completes check #1 with {}
                             => check completed (output kept); request reserve #1 by 279s; request
                                notify #1 by 319s
agent completes notify #1    => notify completed (output kept)
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 279s
agent fails charge #1 "card declined"
                             => Undoing because "step charge: card declined"; charge failed
                                (failures 1, reason kept); request undo of reserve #1 by 279s with
                                "tea"
agent fails undo of reserve #1 "gone"
                             => Error; undo of reserve failed (failures 1, reason kept); due 289s;
                                alert: left to undo check, reserve "undo of step reserve: gone"
clock +1s
ann completes reserve        => task by 860s; undo of check failed (failures 1, reason kept);
                                reserve undone (output kept); due 290s; alert: left to undo check
                                "undo of step check: expression `steps.check.output.path`: there is
                                no `path`"; published: complete reserve
