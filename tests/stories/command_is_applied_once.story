# A command that is delivered twice is applied once. If it is redelivered, its effects may have been
# lost when the scheduler crashed, so they are sent again.
workflow within 10m
  reserve: within 60s, body ${ input.item }
  charge:  after reserve, within 60s

submit reply_to shop with {"item":"tea"}
                             => Pending; due 30s
wake                         => Processing; request reserve #1 by 60s with "tea"
agent fails reserve #1 "no stock"
                             => Error; reserve failed (failures 1, reason kept);
                                notification to shop: error "step reserve: no stock";
                                alert reserve "step reserve: no stock"
ann resubmits because "there is more"
                             => Processing; reserve running (failures 0); due 60s;
                                request reserve #2 by 60s with "tea"; published: resubmit reserve
repeat command             => ignored: DuplicateCommand
repeat command (redelivered)
                             => ignored: DuplicateCommand;
                                again request reserve #2 by 60s with "tea"; again published: resubmit reserve
agent completes reserve #2   => reserve completed (output kept); request charge #1 by 60s
repeat command (redelivered)
                             => ignored: DuplicateCommand; again request charge #1 by 60s;
                                again published: resubmit reserve
ann skips charge             => refused: step charge is running
repeat command             => ignored: DuplicateCommand
repeat command (redelivered)
                             => ignored: DuplicateCommand; again request charge #1 by 60s;
                                again refused: step charge is running
ann cancels                  => Error; due 30s; notification to shop: error "cancelled by ann: a test";
                                alert "cancelled by ann: a test"; published: cancel
repeat command             => ignored: DuplicateCommand
repeat command (redelivered)
                             => ignored: DuplicateCommand;
                                again notification to shop: error "cancelled by ann: a test";
                                again alert "cancelled by ann: a test"; again published: cancel
alert sent                   => no longer due
repeat command (redelivered)
                             => ignored: DuplicateCommand; again published: cancel
agent completes charge #1    => charge completed (output kept)
