# Every event that starts the next step detects that its request cannot be created. In this story the
# task then stops in Error.
workflow within 10m
  reserve: within 20s, attempts 2, backoff from 60s
  charge:  after reserve, path ${ steps.reserve.output.path }
  invoice: within 10m, body ${ input.address }, undo (path ${ input.path })

# For a wake that starts another attempt, the request could be created before. So the input was
# edited.
submit with {"address":"Oslo"}
                             => Pending; due 20s
wake                         => Processing; request reserve #1 by 20s;
                                request invoice #1 by 600s with "Oslo"
clock +22s
sweep                        => reserve waiting until 82s (failures 1, may have run, call may be in progress
                                until 42s, reason kept); unlocked; due 112s; wake scheduler in 60s
ann resubmits reserve with input {"address":null}
                             => refused: an attempt at step reserve may have taken effect: check the
                                service, then complete the step, or resubmit it with the statement
                                that it did not run
clock +20s
ann resubmits reserve with input {"address":null}, it did not run
                             => reserve running (failures 0, did not run); input {} kept; due 62s;
                                request reserve #2 by 62s under key o-1/reserve/do/c-2; published:
                                resubmit reserve with edited input
agent completes reserve #2 with {}
                             => Error; reserve completed (output kept); charge failed (failures 1,
                                reason kept); due 72s; alert charge "step charge: expression
                                `steps.reserve.output.path`: there is no `path`"
ann completes charge because "paid in cash"
                             => Processing; task by 642s; charge completed (output kept); published: complete
                                charge
agent completes invoice #1   => Processed; invoice completed (output kept); no longer due

# The operator skips or completes the previous step.
submit with {"address":"Oslo"}
                             => Pending; due 62s
wake                         => Processing; request reserve #1 by 62s; request invoice #1 by 642s
                                with "Oslo"
clock +22s
sweep                        => reserve waiting until 124s (failures 1, may have run, call may be in progress
                                until 84s, reason kept); unlocked; due 154s; wake scheduler in 60s
ann skips reserve            => Error; reserve skipped; charge failed (failures 1, reason kept); due
                                94s; alert charge "step charge: expression
                                `steps.reserve.output.path`: there is no `path`"; published: skip reserve

submit with {"address":"Oslo"}
                             => Pending; due 84s
wake                         => Processing; request reserve #1 by 84s; request invoice #1 by 664s
                                with "Oslo"
clock +22s
sweep                        => reserve waiting until 146s (failures 1, may have run, call may be in progress
                                until 106s, reason kept); unlocked; due 176s; wake scheduler in 60s
clock +1s
ann completes reserve with {"path":7}
                             => Error; reserve completed (output kept); charge failed (failures 1,
                                reason kept); due 117s; alert charge "step charge: the request's
                                path is not a text"; published: complete reserve
ann undoes                   => Undoing because "requested by ann: a test"; task by 706s; due 136s;
                                published: undo; wake scheduler in 19s

# The step completed while the task was paused.
submit with {"address":"Oslo"}
                             => Pending; due 107s
wake                         => Processing; request reserve #1 by 107s; request invoice #1 by 687s
                                with "Oslo"
ann pauses                   => paused; published: pause
agent completes reserve #1   => reserve completed (output kept)
ann resumes                  => Error; no longer paused; charge failed (failures 1, reason kept);
                                due 117s; alert charge "step charge: expression
                                `steps.reserve.output.path`: there is no `path`"; published: resume

# The task is Pending.
submit with {}               => Pending; due 107s
ann pauses                   => paused; due 3687s; published: pause
ann resumes                  => Error; no longer paused; invoice failed (failures 1, reason kept);
                                due 117s; alert invoice "step invoice: expression `input.address`:
                                there is no `address`"; published: resume

# The previous step failed permanently, and the operator settles it.
submit with {"address":"Oslo"}
                             => Pending; due 107s
wake                         => Processing; request reserve #1 by 107s; request invoice #1 by 687s
                                with "Oslo"
agent fails reserve #1 "no stock"
                             => Error; reserve failed (failures 1, reason kept); due 117s; alert
                                reserve "step reserve: no stock"
ann skips reserve            => reserve skipped; charge failed (failures 1, reason kept); due 117s; alert charge
                                "step charge: expression `steps.reserve.output.path`: there is no `path`";
                                published: skip reserve

submit with {"address":"Oslo"}
                             => Pending; due 107s
wake                         => Processing; request reserve #1 by 107s; request invoice #1 by 687s
                                with "Oslo"
agent fails reserve #1 "no stock"
                             => Error; reserve failed (failures 1, reason kept); due 117s; alert
                                reserve "step reserve: no stock"
clock +1s
ann completes reserve with {"path":"charges"}
                             => task by 688s; reserve completed (output kept); charge failed
                                (failures 1, reason kept); due 118s; alert charge "step charge: the
                                request's path must start with `/`"; published: complete reserve
