# A command that is delivered twice is carried out once. If it was delivered before, its effects may
# have been lost with the scheduler, so they are sent again.
workflow within 10m
  reserve: within 60s, body ${ input.item }
  charge:  after reserve, within 60s

submit reply_to shop with {"item":"tea"}
                             => Pending; due 30s
wake                         => Processing; request reserve #1 by 60s with "tea"
agent fails reserve #1 "no stock"
                             => Error; reserve failed (failures 1, reason kept);
                                notice to shop: error "step reserve: no stock";
                                alert reserve "step reserve: no stock"
ann resubmits because "there is more"
                             => Processing; reserve running (failures 0); due 60s;
                                request reserve #2 by 60s with "tea"; told: resubmit reserve
the same command             => ignored: DuplicateCommand
the same command (redelivered)
                             => ignored: DuplicateCommand;
                                again request reserve #2 by 60s with "tea"; again told: resubmit reserve
agent completes reserve #2   => reserve completed (output kept); request charge #1 by 60s
the same command (redelivered)
                             => ignored: DuplicateCommand; again request charge #1 by 60s;
                                again told: resubmit reserve
ann skips charge             => refused: step charge is running
the same command             => ignored: DuplicateCommand
the same command (redelivered)
                             => ignored: DuplicateCommand; again request charge #1 by 60s;
                                again refused: step charge is running
ann cancels                  => Error; due 30s; notice to shop: error "cancelled by ann: a test";
                                alert "cancelled by ann: a test"; told: cancel
the same command             => ignored: DuplicateCommand
the same command (redelivered)
                             => ignored: DuplicateCommand;
                                again notice to shop: error "cancelled by ann: a test";
                                again alert "cancelled by ann: a test"; again told: cancel
alert sent                   => no longer due
the same command (redelivered)
                             => ignored: DuplicateCommand; again told: cancel
agent completes charge #1    => charge completed (output kept)
