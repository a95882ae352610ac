# When several steps failed, the operator names one. The task continues when no failed step is left.
workflow within 10m
  reserve: within 60s
  invoice: within 60s
  ship:    after reserve and invoice

submit                       => Pending; due 30s
wake                         => Processing; request reserve #1 by 60s; request invoice #1 by 60s
clock +1s
agent fails reserve #1 "no stock"
                             => Error; reserve failed (failures 1, reason kept); due 31s;
                                alert reserve "step reserve: no stock"
agent fails invoice #1 "no address"
                             => invoice failed (failures 1, reason kept); alert invoice, reserve "step invoice:
                                no address; step reserve: no stock"
ann skips                    => refused: several steps failed: name one of invoice, reserve
ann completes with {"id":7}  => refused: several steps failed: name one of invoice, reserve
ann skips reserve => task by 601s; reserve skipped; published: skip reserve
ann completes invoice with {"id":7} => Processing; invoice completed (output kept); due 61s; request ship #1 by 61s; published: complete invoice
agent completes ship #1      => Processed; ship completed (output kept); no longer due

submit                       => Pending; due 31s
wake                         => Processing; request reserve #1 by 61s; request invoice #1 by 61s
agent fails reserve #1 "no stock"
                             => Error; reserve failed (failures 1, reason kept);
                                alert reserve "step reserve: no stock"
agent fails invoice #1 "no address"
                             => invoice failed (failures 1, reason kept); alert invoice, reserve "step invoice:
                                no address; step reserve: no stock"
ann completes reserve        => reserve completed (output kept); published: complete reserve
ann resubmits invoice        => Processing; invoice running (failures 0); due 61s;
                                request invoice #2 by 61s; published: resubmit invoice
agent completes invoice #2   => invoice completed (output kept); request ship #1 by 61s
agent completes ship #1      => Processed; ship completed (output kept); no longer due

submit                       => Pending; due 31s
wake                         => Processing; request reserve #1 by 61s; request invoice #1 by 61s
agent fails reserve #1 "no stock"
                             => Error; reserve failed (failures 1, reason kept);
                                alert reserve "step reserve: no stock"
agent fails invoice #1 "no address"
                             => invoice failed (failures 1, reason kept); alert invoice, reserve "step invoice:
                                no address; step reserve: no stock"
ann resubmits reserve        => reserve running (failures 0); due 61s; request reserve #2 by 61s; published:
                                resubmit reserve
ann resubmits                => Processing; invoice running (failures 0); request invoice #2 by 61s; published:
                                resubmit invoice
