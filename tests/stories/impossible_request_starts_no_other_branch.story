# A decision that ends the task in Error starts no other branch.
workflow
  reserve: within 20s, body ${ input.item }
  invoice: within 20s

submit with {}               => Pending; due 20s
wake                         => Error; reserve failed (failures 1, reason kept); due 30s; alert reserve
                                "step reserve: expression `input.item`: there is no `item`"
