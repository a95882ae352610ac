# A task that ends while it is paused is no longer paused. Later commands take effect at once.
workflow within 10m
  reserve: within 60s

submit                       => Pending; due 30s
wake                         => Processing; request reserve #1 by 60s
ann pauses                   => paused; due 60s; published: pause
agent fails reserve #1 "no stock"
                             => Error; no longer paused; reserve failed (failures 1, reason kept);
                                due 30s; alert reserve "step reserve: no stock"
clock +1s
ann resubmits                => Processing; task by 601s; reserve running (failures 0); due 61s;
                                request reserve #2 by 61s; published: resubmit reserve
agent completes reserve #2   => Processed; reserve completed (output kept); no longer due
