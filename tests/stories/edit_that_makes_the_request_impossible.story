# An edited input can lack a value that the request needs. The step fails again, and a new alert is
# sent.
workflow within 10m
  reserve: body ${ input.card.number }, within 20s, attempts 2, backoff from 60s

submit with {"card":{"number":1}}
                             => Pending; due 20s
wake                         => Processing; request reserve #1 by 20s with 1
agent fails reserve #1 "card declined"
                             => Error; reserve failed (failures 1, reason kept); due 30s;
                                alert reserve "step reserve: card declined"
alert sent                   => no longer due
clock +1s
ann resubmits with input {"card":null}
                             => task by 601s; reserve failed (reason kept); input {} kept; due 31s;
                                alert reserve "step reserve: expression `input.card.number`: there
                                is no `card`"; published: resubmit reserve with edited input
ann resubmits with input {"card":{"number":2}}
                             => Processing; reserve running (failures 0);
                                input {"card":{"number":2}} kept; due 21s;
                                request reserve #3 by 21s with 2 under key o-1/reserve/do/c-2;
                                published: resubmit reserve with edited input
agent completes reserve #3   => Processed; reserve completed (output kept); no longer due
