# The operator undoes a task in any state: Processing, Error, also Processed.
workflow within 10m
  reserve: undo
  charge:  after reserve, undo

submit                       => Pending; due 30s
ann undoes because "a test order"
                             => Undone because "requested by ann: a test order"; no longer due;
                                published: undo

submit                       => Pending; due 30s
wake                         => Processing; request reserve #1 by 60s
ann undoes because "the customer called"
                             => Undoing because "requested by ann: the customer called"; due 60s;
                                published: undo
agent completes reserve #1   => reserve completed (output kept); request undo of reserve #1 by 60s
agent completes undo of reserve #1
                             => Undone; reserve undone (output kept); no longer due

submit                       => Pending; due 30s
wake                         => Processing; request reserve #1 by 60s
ann undoes                   => Undoing because "requested by ann: a test"; due 60s; published: undo
clock +1s
agent fails reserve #1 "no stock"
                             => Undone; reserve failed (failures 1, reason kept); no longer due

submit                       => Pending; due 31s
wake                         => Processing; request reserve #1 by 61s
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 61s
agent fails charge #1 "card declined"
                             => Error; charge failed (failures 1, reason kept);
                                alert charge "step charge: card declined"
alert sent                   => no longer due
clock +1h
ann undoes                   => Undoing because "requested by ann: a test"; task by 4201s; due 3661s;
                                request undo of reserve #1 by 3661s; published: undo
agent completes undo of reserve #1
                             => Undone; reserve undone (output kept); no longer due

submit reply_to shop         => Pending; due 3631s
wake                         => Processing; request reserve #1 by 3661s
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 3661s
agent completes charge #1    => Processed; charge completed (output kept); no longer due;
                                notification to shop: processed
clock +1h
ann undoes because "sent back"
                             => Undoing because "requested by ann: sent back"; task by 7801s; due
                                7261s; request undo of charge #1 by 7261s; published: undo
agent completes undo of charge #1
                             => charge undone (output kept); request undo of reserve #1 by 7261s
agent completes undo of reserve #1
                             => Undone; reserve undone (output kept); no longer due; notification to
                                shop: undone "requested by ann: sent back"
