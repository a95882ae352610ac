# A wake can end a task if its first request cannot be created. The alert is an effect like any other:
# a redelivered wake sends it again, without the supervisor.
workflow
  reserve: within 60s, body ${ input.item }

submit reply_to shop with {} => Pending; due 30s
clock +1s
wake                         => Error; reserve failed (failures 1, reason kept); due 31s;
                                notification to shop: error
                                "step reserve: expression `input.item`: there is no `item`";
                                alert reserve
                                "step reserve: expression `input.item`: there is no `item`"
wake => ignored: NothingReady
wake (redelivered) => ignored: NothingReady; again notification to shop: error "step reserve: expression `input.item`: there is no `item`"; again alert reserve "step reserve: expression `input.item`: there is no `item`"
alert sent                   => no longer due
wake (redelivered) => ignored: NothingReady
