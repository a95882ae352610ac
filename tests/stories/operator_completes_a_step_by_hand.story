# The operator has done a step by hand, and says what it returned. What its agent still says is about
# an earlier attempt.
workflow within 10m
  reserve: within 20s, attempts 2, backoff from 60s, undo (path /release/${ steps.reserve.output.id })
  charge:  after reserve, body ${ steps.reserve.output.id }

submit reply_to shop         => Pending; due 20s
wake                         => Processing; request reserve #1 by 20s
clock +22s
sweep                        => reserve waiting until 82s (failures 1, may have run, call may last
                                until 42s, reason kept); unlocked; due 112s; wake scheduler in 60s
ann completes reserve with 131073 bytes
                             => refused: an output of 131073 bytes; the limit is 131072
ann completes reserve with {"id":"r-7"} because "done on the phone"
                             => reserve completed (output kept); due 82s;
                                request charge #1 by 82s with "r-7"; told: complete reserve
agent completes reserve #1 with {"id":"r-1"}
                             => ignored: StaleReply
agent completes reserve #2 with {"id":"r-1"}
                             => ignored: DuplicateReply
agent fails charge #1 "card declined"
                             => Error; charge failed (failures 1, reason kept); due 52s;
                                notice to shop: error "step charge: card declined";
                                alert charge "step charge: card declined"
alert sent                   => no longer due
ann completes with {"id":"ch-7"} because "paid in cash"
                             => Processed; task by 622s; charge completed (output kept);
                                notice to shop: processed; told: complete charge
ann undoes because "the customer called"
                             => Undoing because "requested by ann: the customer called"; task by
                                642s; due 72s; told: undo; wake scheduler in 20s
clock +20s
wake                         => request undo of reserve #1 by 102s at /release/r-7
agent completes undo of reserve #1
                             => Undone; reserve undone (output kept); no longer due; notice to shop:
                                undone "requested by ann: the customer called"

# Before it has started.
submit                       => Pending; due 62s
wake                         => Processing; request reserve #1 by 62s
ann completes charge with {"id":"ch-8"}
                             => charge completed (output kept); told: complete charge
agent completes reserve #1 with {"id":"r-1"}
                             => Processed; reserve completed (output kept); no longer due
