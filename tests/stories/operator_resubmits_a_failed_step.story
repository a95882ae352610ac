# The operator resubmits a failed step. Its attempts start again at the policy's number, the task's
# failure count stays, and the task gets a new complete-by. If it fails again, a new alert is sent.
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
                                notification to shop: error "step charge: card declined";
                                alert charge "step charge: card declined"
alert sent                   => no longer due
clock +10m
ann resubmits charge because "the customer has a new card"
                             => Processing; task by 1201s; charge running (failures 0); due 621s;
                                request charge #2 by 621s; published: resubmit charge
ann resubmits charge         => refused: step charge is running: only a failed or waiting step can be
                                resubmitted
clock +22s
sweep                        => charge waiting (failures 1, may have run, call may be in progress until 643s,
                                reason kept); unlocked; due 653s; wake scheduler
wake                         => due 643s; request charge #3 by 643s
clock +22s
sweep                        => Error; charge failed (failures 2, call may be in progress until 665s, reason
                                kept); due 675s; notification to shop: error "step charge: no reply by
                                complete-by, attempt 3"; alert charge "step charge: no reply by
                                complete-by, attempt 3"
# The operator acts before the alert is recorded as sent.
ann resubmits                => Processing; task by 1245s; charge running (failures 0); due 665s;
                                request charge #4 by 665s; published: resubmit charge
alert sent                   => ignored: NotDue
agent completes charge #4    => Processed; charge completed (output kept); no longer due;
                                notification to shop: processed
ann resubmits                => refused: the task is Processed
