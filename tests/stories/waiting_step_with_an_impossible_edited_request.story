# A waiting step is resubmitted with an input from which its request cannot be created.
workflow within 10m
  reserve: body ${ input.item }

submit with {"item":"tea"}   => Pending; due 30s
wake                         => Processing; request reserve #1 by 60s with "tea"
agent defers reserve #1 for 60s "breaker open"
                             => reserve waiting until 60s (reason kept); wake scheduler in 60s
clock +122s
ann resubmits with input {"item":null}, it did not run
                             => Error; reserve failed (failures 1, reason kept); input {} kept; due
                                152s; alert reserve "step reserve: expression `input.item`: there is
                                no `item`"; published: resubmit reserve with edited input
