# A cancelled task stops at once: nothing more is sent, and nothing is undone. Replies of agents are
# recorded. The operator can resume the task, or undo it.
workflow within 10m
  reserve: undo
  charge:  after reserve, undo

submit                       => Pending; due 30s
ann cancels because "a test order"
                             => Error; alert "cancelled by ann: a test order"; published: cancel
wake                         => ignored: Ended
clock +1s
ann resubmits                => Processing; task by 601s; due 61s; request reserve #1 by 61s;
                                published: resubmit
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 61s
agent completes charge #1    => Processed; charge completed (output kept); no longer due

submit reply_to shop         => Pending; due 31s
wake                         => Processing; request reserve #1 by 61s
ann cancels because "the customer called"
                             => Error;
                                notification to shop: error "cancelled by ann: the customer called";
                                alert "cancelled by ann: the customer called"; published: cancel
agent completes reserve #1   => reserve completed (output kept)
alert sent                   => no longer due
clock +1s
ann resubmits                => Processing; task by 602s; due 62s; request charge #1 by 62s;
                                published: resubmit
ann cancels                  => Error; due 32s; notification to shop: error "cancelled by ann: a test";
                                alert "cancelled by ann: a test"; published: cancel
clock +1s
agent completes charge #1    => charge completed (output kept)
ann resubmits                => Processed; task by 603s; notification to shop: processed; published: resubmit

# The same during the undo.
submit                       => Pending; due 33s
wake                         => Processing; request reserve #1 by 63s
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 63s
agent fails charge #1 "card declined"
                             => Error; charge failed (failures 1, reason kept);
                                alert charge "step charge: card declined"
ann undoes                   => Undoing because "requested by ann: a test"; due 63s; request undo of
                                reserve #1 by 63s; published: undo
clock +1s
ann cancels                  => Error; due 34s;
                                alert: left to undo reserve "cancelled by ann: a test"; published: cancel
agent completes undo of reserve #1
                             => reserve undone (output kept)
ann undoes                   => refused: the undo of the task failed: resubmit to continue it
ann resubmits                => Undone; task by 604s; published: resubmit
