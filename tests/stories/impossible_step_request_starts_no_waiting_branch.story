# If the request of a resubmitted step cannot be created, no other step starts. Branches that were
# waiting wait until the task continues, with the edited input and the operator's statement.
workflow within 10m
  reserve: body ${ input.item }
  invoice: within 60s

submit with {"item":"tea"}   => Pending; due 30s
wake                         => Processing; request reserve #1 by 60s with "tea";
                                request invoice #1 by 60s
agent defers reserve #1 for 60s "breaker open"
                             => reserve waiting until 60s (reason kept); wake scheduler in 60s
agent defers invoice #1 for 60s "breaker open"
                             => invoice waiting until 60s (reason kept); wake scheduler in 60s
clock +122s
ann resubmits with input {"item":null}, it did not run => Error; reserve failed (failures 1, reason kept); invoice waiting; input {} kept; due 152s; alert reserve "step reserve: expression `input.item`: there is no `item`"; published: resubmit invoice, reserve with edited input; wake scheduler
clock +1s
ann skips reserve            => Processing; task by 723s; reserve skipped; due 183s; request invoice #2
                                by 183s under key o-1/invoice/do/c-1; published: skip reserve
agent completes invoice #2   => Processed; invoice completed (output kept); no longer due
