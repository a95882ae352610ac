# A deferred request may have been delivered twice. The input cannot be edited until its call must
# have ended, because the edit would cause a second call with another idempotency key.
workflow within 10m
  charge: within 60s, path /cards/${ input.card }, undo (within 60s, path /cards/${ input.card }/refund)
  pay:    undo (within 60s)
  ship:   after charge and pay, then undo

submit with {"card":"old"}   => Pending; due 30s
wake                         => Processing; request charge #1 by 60s at /cards/old; request pay #1
                                by 60s
agent defers charge #1 for 60s "breaker open"
                             => charge waiting until 60s (reason kept); wake scheduler in 60s
ann resubmits charge with input {"card":"new"}
                             => refused: an attempt at step charge may have taken effect: check the
                                service, then complete the step, or resubmit it with the statement
                                that it did not run
clock +122s
ann resubmits charge with input {"card":"new"}
                             => refused: an attempt at step charge may have taken effect: check the
                                service, then complete the step, or resubmit it with the statement
                                that it did not run
ann resubmits charge with input {"card":"new"}, it did not run
                             => input {"card":"new"} kept; due 60s; request charge #2 by 182s at
                                /cards/new under key o-1/charge/do/c-3; published: resubmit charge with
                                edited input
agent completes charge #1 => Error; document step/charge/1/output; alert charge "step charge: attempt 1 ran with the input before its edit too: `undo` the task, or revert one effect at its service and `resubmit --did-not-run`"

# The same for an undo.
submit with {"card":"old"}   => Pending; due 152s
wake                         => Processing; request charge #1 by 182s at /cards/old; request pay #1
                                by 182s
agent completes charge #1    => charge completed (output kept)
agent completes pay #1       => pay completed (output kept); request ship #1 by 182s
agent fails ship #1 "no"     => Undoing because "step ship: no"; ship failed (failures 1, reason
                                kept); request undo of charge #1 by 182s at /cards/old/refund;
                                request undo of pay #1 by 182s
agent defers undo of charge #1 for 60s "breaker open"
                             => undo of charge waiting until 182s (reason kept); wake scheduler in
                                60s
agent fails undo of pay #1 "HTTP 422"
                             => Error; undo of pay failed (failures 1, reason kept); alert: left to
                                undo charge, pay "undo of step pay: HTTP 422"
ann resubmits with input {"card":"new"}
                             => refused: an attempt at step charge may have taken effect: check the
                                service, then complete the step, or resubmit it with the statement
                                that it did not run
