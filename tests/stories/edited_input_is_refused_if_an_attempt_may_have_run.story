# After an edit, the service cannot recognise the first call, because the idempotency key changes. So
# the input of a step that may have run cannot be edited, unless the operator states that it did not
# run.
workflow within 10m
  charge: within 20s, attempts 1, body ${ input.card }

submit with {"card":"old"}   => Pending; due 20s
wake                         => Processing; request charge #1 by 20s with "old"
clock +22s
sweep                        => Error; charge failed (failures 1, may have run, call may be in progress until
                                42s, reason kept); due 52s; alert charge "step charge: no reply by
                                complete-by, attempt 1"
ann resubmits charge with input {"card":"new"}
                             => refused: an attempt at step charge may have taken effect: check the
                                service, then complete the step, or resubmit it with the statement
                                that it did not run
ann resubmits with input 131073 bytes
                             => refused: an attempt at step charge may have taken effect: check the
                                service, then complete the step, or resubmit it with the statement
                                that it did not run
# The service's ledger does not contain a call that is still in progress.
ann resubmits charge with input {"card":"new"}, it did not run because "their ledger has no charge"
                             => refused: a call of step charge may be in progress until
                                1970-01-01T00:00:42Z: state that it did not run after that time
clock +20s
ann resubmits charge with input {"card":"new"}, it did not run because "their ledger has no charge"
                             => Processing; task by 642s; charge running (failures 0, did not run);
                                input {"card":"new"} kept; due 62s; request charge #2 by 62s with
                                "new" under key o-1/charge/do/c-4; published: resubmit charge with edited
                                input
agent completes charge #2    => Processed; charge completed (output kept); no longer due

# A request with the same content and the same key can always be repeated.
submit with {"card":"old"}   => Pending; due 62s
wake                         => Processing; request charge #1 by 62s with "old"
clock +22s
sweep                        => Error; charge failed (failures 1, may have run, call may be in progress until
                                84s, reason kept); due 94s; alert charge "step charge: no reply by
                                complete-by, attempt 1"
ann resubmits charge         => Processing; task by 664s; charge running (failures 0); due 84s;
                                request charge #2 by 84s with "old"; published: resubmit charge
agent completes charge #2    => Processed; charge completed (output kept); no longer due

submit with {"card":"old"}   => Pending; due 84s
wake                         => Processing; request charge #1 by 84s with "old"
agent fails charge #1 "card declined"
                             => Error; charge failed (failures 1, reason kept); due 94s; alert
                                charge "step charge: card declined"
ann resubmits charge with input 131073 bytes
                             => refused: an edit of the input of 131073 bytes; the limit is 131072
