# The operator lets the task continue without a step that failed, waits, or has not started. The
# step's output is null.
workflow within 10m
  reserve: within 20s, attempts 2, backoff from 60s, undo
  charge:  after reserve, body ["${ steps.reserve.output }"]
  notify:  after charge

submit reply_to shop         => Pending; due 20s
wake                         => Processing; request reserve #1 by 20s
agent fails reserve #1 "no stock"
                             => Error; reserve failed (failures 1, reason kept); due 30s;
                                notification to shop: error "step reserve: no stock";
                                alert reserve "step reserve: no stock"
ann skips because "we have it in the shop"
                             => Processing; reserve skipped; due 60s;
                                request charge #1 by 60s with [null]; published: skip reserve
ann skips notify             => notify skipped; published: skip notify
agent completes charge #1    => Processed; charge completed (output kept); no longer due;
                                notification to shop: processed

# The step waits and may have run, so it would be undone nevertheless. When it proves to have run, somebody has to know.
submit                       => Pending; due 20s
wake                         => Processing; request reserve #1 by 20s
clock +22s
sweep                        => reserve waiting until 82s (failures 1, may have run, call may be in progress
                                until 42s, reason kept); unlocked; due 112s; wake scheduler in 60s
ann skips reserve            => reserve skipped; due 82s; request charge #1 by 82s with [null];
                                published: skip reserve
agent completes reserve #1   => Error; due 52s; alert "step reserve took effect, and it was skipped"
agent completes reserve #1   => ignored: DuplicateReply
agent fails charge #1 "card declined"
                             => charge failed (failures 1, reason kept); alert charge "step charge: card
                                declined; step reserve took effect, and it was skipped"
alert sent                   => no longer due
ann undoes                   => Undoing because "requested by ann: a test"; task by 642s; due 72s;
                                published: undo; wake scheduler in 20s
clock +20s
wake                         => request undo of reserve #1 by 102s
agent completes undo of reserve #1
                             => Undone; reserve undone (output kept); no longer due

# Unless the operator states that it did not run.
submit                       => Pending; due 62s
wake                         => Processing; request reserve #1 by 62s
clock +22s
sweep                        => reserve waiting until 124s (failures 1, may have run, call may be in progress
                                until 84s, reason kept); unlocked; due 154s; wake scheduler in 60s
clock +20s
ann skips reserve, it did not run because "their log is empty"
                             => reserve skipped (did not run); due 144s; request charge #1 by 144s
                                with [null]; published: skip reserve
agent fails charge #1 "card declined"
                             => Error; charge failed (failures 1, reason kept); due 114s; alert
                                charge "step charge: card declined"
ann undoes                   => Undone because "requested by ann: a test"; task by 684s; published: undo

# The last step.
submit                       => Pending; due 104s
wake                         => Processing; request reserve #1 by 104s
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 144s with
                                [null]
agent completes charge #1    => charge completed (output kept); request notify #1 by 144s
agent fails notify #1 "no address"
                             => Error; notify failed (failures 1, reason kept); due 114s; alert
                                notify "step notify: no address"
ann skips notify             => Processed; notify skipped; published: skip notify
