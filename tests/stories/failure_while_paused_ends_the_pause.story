# A task that ends while it is paused is no longer paused. Later commands take effect at once.
workflow within 10m
  reserve: within 60s

submit                       => Pending; due 30s
wake => Processing; request reserve #1 by 60s; request invoice #1 by 60s
ann pauses                   => paused; due 60s; published: pause
agent fails reserve #1 "no stock"
                             => Error; no longer paused; reserve failed (failures 1, reason kept);
                                due 30s; alert reserve "step reserve: no stock"
clock +1s
ann resubmits                => Processing; task by 601s; reserve running (failures 0); request reserve #2 by
                                61s; published: resubmit reserve
agent completes reserve #2 => reserve completed (output kept)

# A branch whose pause goes on in Error is woken.
workflow within 10m
  reserve: within 60s
  invoice: within 60s

submit => Pending; due 31s
wake => Processing; request reserve #1 by 61s; request invoice #1 by 61s
agent defers invoice #1 for 40s "busy" => invoice waiting until 41s (reason kept); wake scheduler in 40s
ann pauses => paused; due 61s; published: pause
agent fails reserve #1 "no stock" => Error; no longer paused; reserve failed (failures 1, reason kept); due 31s; alert reserve "step reserve: no stock"; wake scheduler in 40s
clock +40s
wake => invoice running (may have run, call may be in progress until 123s); request invoice #2 by 101s
