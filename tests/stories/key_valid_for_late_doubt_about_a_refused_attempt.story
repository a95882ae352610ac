# A refusal is certain for its own delivery only. An operator repeats the step when the service may have forgotten the key: the step gets
# another one. When the other delivery of the first request proves to have run, it is another effect, and a person is told.
workflow within 1h
  charge:  within 20s, attempts 3, backoff from 10s, key valid for 60s

submit                       => Pending; due 20s
wake                         => Processing; request charge #1 by 20s
agent fails charge #1 "no"   => Error; charge failed (failures 1, reason kept); due 30s; alert charge "step
                                charge: no"
clock +90s
ann resubmits                => Processing; task by 3690s; charge running (failures 0); input null kept; due
                                110s; request charge #2 by 110s under key o-1/charge/do/c-1; published: resubmit
                                charge
agent cuts charge #1 "too slow"
                             => Error; charge running #2 (call may be in progress until 112s); alert charge
                                "step charge: attempt 1 may have run with the input before its edit too: `undo`
                                the task, or revert one effect at its service and `resubmit --did-not-run`"
agent completes charge #1    => document step/charge/1/output; alert charge "step charge: attempt 1 ran with the
                                input before its edit too; step charge: attempt 1 may have run with the input
                                befor…: `undo` the task, or revert one effect at its service and `resubmit
                                --did-not-run`"
