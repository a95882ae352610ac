# A service that cannot recognise a repeated call is called once. If its agent is silent, `then`
# applies at once, although attempts are left.
workflow within 10m
  reserve: undo
  charge:  after reserve, within 20s, attempts 3, not idempotent

submit                       => Pending; due 20s
wake                         => Processing; request reserve #1 by 60s
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 20s
clock +22s
sweep                        => Error; charge failed (failures 1, may have run, call may be in progress until
                                42s, reason kept); due 52s; alert charge "step charge: no reply by
                                complete-by, attempt 1"
# An operator cannot resubmit it without stating that it did not run.
ann resubmits charge         => refused: an attempt at step charge may have taken effect: check the
                                service, then complete the step, or resubmit it with the statement
                                that it did not run
ann resubmits                => refused: an attempt at step charge may have taken effect: check the
                                service, then complete the step, or resubmit it with the statement
                                that it did not run
clock +20s
ann resubmits charge, it did not run because "their ledger has no charge"
                             => Processing; task by 642s; charge running (failures 0, did not run); input null kept; due 62s; request charge #2 by 62s under key o-1/charge/do/c-3; published: resubmit charge
agent completes charge #2    => Processed; charge completed (output kept); no longer due
