# A cancelled task stops where it stands: nothing more is sent, nothing is undone. What is still with
# an agent is recorded. The operator can have it go on, or undone.
workflow within 10m
  reserve: undo
  charge:  after reserve, undo

submit                       => Pending; due 30s
ann cancels because "a test order"
                             => Error; alert "cancelled by ann: a test order"; told: cancel
wake                         => ignored: Ended
clock +1s
ann resubmits                => Processing; task by 601s; due 61s; request reserve #1 by 61s;
                                told: resubmit
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 61s
agent completes charge #1    => Processed; charge completed (output kept); no longer due

submit reply_to shop         => Pending; due 31s
wake                         => Processing; request reserve #1 by 61s
ann cancels because "the customer called"
                             => Error;
                                notice to shop: error "cancelled by ann: the customer called";
                                alert "cancelled by ann: the customer called"; told: cancel
agent completes reserve #1   => reserve completed (output kept)
alert sent                   => no longer due
clock +1s
ann resubmits                => Processing; task by 602s; due 62s; request charge #1 by 62s;
                                told: resubmit
ann cancels                  => Error; due 32s; notice to shop: error "cancelled by ann: a test";
                                alert "cancelled by ann: a test"; told: cancel
clock +1s
agent completes charge #1    => charge completed (output kept)
ann resubmits                => Processed; task by 603s; no longer due; notice to shop: processed;
                                told: resubmit

# While it is undone, too.
submit                       => Pending; due 33s
wake                         => Processing; request reserve #1 by 63s
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 63s
agent fails charge #1 "card declined"
                             => Error; charge failed (failures 1, reason kept);
                                alert charge "step charge: card declined"
ann undoes                   => Undoing because "requested by ann: a test"; due 63s; request undo of
                                reserve #1 by 63s; told: undo
clock +1s
ann cancels                  => Error; due 34s;
                                alert: left to undo reserve "cancelled by ann: a test"; told: cancel
agent completes undo of reserve #1
                             => reserve undone (output kept)
ann undoes                   => refused: the undo of the task failed: resubmit to continue it
ann resubmits                => Undone; task by 604s; no longer due; told: resubmit
