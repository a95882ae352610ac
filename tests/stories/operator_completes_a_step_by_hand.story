# The operator has carried out a step manually and enters its output. It was known that the step may have run. When its agent
# proves that it did, there are two effects.
workflow within 10m
  reserve: within 20s, attempts 2, backoff from 60s, undo (path /release/${ steps.reserve.output.id })
  charge:  after reserve, body ${ steps.reserve.output.id }

submit reply_to shop         => Pending; due 20s
wake                         => Processing; request reserve #1 by 20s
clock +22s
sweep                        => reserve waiting until 82s (failures 1, may have run, call may be in progress
                                until 42s, reason kept); unlocked; due 112s; wake scheduler in 60s
ann completes reserve with 131073 bytes
                             => refused: an output of 131073 bytes; the limit is 131072
ann completes reserve with {"id":"r-7"} because "done on the phone"
                             => reserve completed (output kept); due 82s;
                                request charge #1 by 82s with "r-7"; published: complete reserve
agent cuts reserve #1 "a repeated message" => ignored: DuplicateReply
agent completes reserve #1 with {"id":"r-1"}
                             => Error; due 52s; notification to shop: error "step reserve took effect, and an operator completed it"; alert reserve "step reserve took effect, and an operator completed it: `undo` the task, or revert one effect at its service and `resubmit --did-not-run`"
agent completes reserve #2 with {"id":"r-1"}
                             => ignored: DuplicateReply
agent fails charge #1 "card declined"
                             => charge failed (failures 1, reason kept); notification to shop: error "step
                                charge: card declined; step reserve took effect, and an operator completed it";
                                alert charge, reserve "step charge: card declined; step reserve took effect, and
                                an operator completed it: `undo` the task, or revert one effect at its service
                                and `resubmit --did-not-run`"
alert sent                   => no longer due
ann completes with {"id":"ch-7"} because "paid in cash"
                             => Processed; task by 622s; charge completed (output kept);
                                notification to shop: processed; published: complete charge
ann undoes because "the customer called"
                             => Undoing because "requested by ann: the customer called"; task by 642s;
                                due 72s; published: undo; wake scheduler in 20s
clock +20s
wake                         => request undo of reserve #1 by 102s at /release/r-7
agent completes undo of reserve #1
                             => Undone; reserve undone (output kept); no longer due; notification to
                                shop: undone "requested by ann: the customer called"

# Before the step has started.
submit                       => Pending; due 62s
wake                         => Processing; request reserve #1 by 62s
ann completes charge with {"id":"ch-8"}
                             => charge completed (output kept); published: complete charge
agent completes reserve #1 with {"id":"r-1"}
                             => Processed; reserve completed (output kept); no longer due
