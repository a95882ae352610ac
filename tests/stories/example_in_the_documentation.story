# The example in the documentation at the top of tests/stories.rs.
timing   clock skew 2s, pickup within 30s
workflow within 10m, overdue undo
  reserve: within 20s, attempts 2, backoff from 2s rate 3 up to 20s, undo (path /release)
  charge:  after reserve, body ${ steps.reserve.output.id }, then undo

submit                       => Pending; due 20s
wake                         => Processing; request reserve #1 by 20s
clock +22s
sweep                        => reserve waiting until 24s (failures 1, may have run, call may be in progress
                                until 42s, reason kept); unlocked; due 54s; wake scheduler in 2s
ann completes reserve with {"id":"r-7"} because "done on the phone"
                             => reserve completed (output kept); due 82s;
                                request charge #1 by 82s with "r-7"; published: complete reserve
agent fails charge #1 "card declined"
                             => Undoing because "step charge: card declined"; task by 642s; charge
                                failed (failures 1, reason kept); due 72s; wake scheduler in 20s
