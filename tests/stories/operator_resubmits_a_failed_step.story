# The operator has a failed step tried again: its attempts are renewed, the task's own failures stay
# counted, and the task has as much time as at first. If it fails again, it is alerted again.
timing   clock skew 2s, pickup within 30s
workflow within 10m
  reserve: within 60s
  charge:  after reserve, within 20s, attempts 2

submit reply_to shop         => Pending; due 20s
wake                         => Processing; request reserve #1 by 60s
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 20s
clock +1s
agent fails charge #1 "card declined"
                             => Error; charge failed (failures 1, reason kept); due 31s;
                                notice to shop: error "step charge: card declined";
                                alert charge "step charge: card declined"
alert sent                   => no longer due
clock +10m
ann resubmits charge because "the customer has a new card"
                             => Processing; task by 1201s; charge running (failures 0); due 621s;
                                request charge #2 by 621s; told: resubmit charge
ann resubmits charge         => refused: step charge is running: only a failed or waiting step can
                                be resubmitted
clock +22s
sweep                        => charge waiting (failures 1, may have run, call may last until 643s,
                                reason kept); unlocked; due 653s; wake scheduler
wake                         => due 643s; request charge #3 by 643s
clock +22s
sweep                        => Error; charge failed (failures 2, call may last until 665s, reason
                                kept); due 675s; notice to shop: error "step charge: no reply by
                                complete-by, attempt 3"; alert charge "step charge: no reply by
                                complete-by, attempt 3"
# The operator is quicker than the record that the alert was sent.
ann resubmits                => Processing; task by 1245s; charge running (failures 0); due 665s;
                                request charge #4 by 665s; told: resubmit charge
alert sent                   => ignored: NotDue
agent completes charge #4    => Processed; charge completed (output kept); no longer due;
                                notice to shop: processed
ann resubmits                => refused: the task is Processed
