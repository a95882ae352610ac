# The task is Undone when nothing is left and the last branch has answered.
workflow within 10m
  reserve: within 60s
  charge:  within 60s, then undo

submit                       => Pending; due 30s
wake                         => Processing; request reserve #1 by 60s; request charge #1 by 60s
agent fails charge #1 "card declined"
                             => Undoing because "step charge: card declined";
                                charge failed (failures 1, reason kept)
agent completes reserve #1   => Undone; reserve completed (output kept); no longer due

submit                       => Pending; due 30s
wake                         => Processing; request reserve #1 by 60s; request charge #1 by 60s
agent fails charge #1 "card declined"
                             => Undoing because "step charge: card declined";
                                charge failed (failures 1, reason kept)
agent fails reserve #1 "no stock"
                             => Undone; reserve failed (failures 1, reason kept); no longer due

submit                       => Pending; due 30s
wake                         => Processing; request reserve #1 by 60s; request charge #1 by 60s
agent fails charge #1 "card declined"
                             => Undoing because "step charge: card declined";
                                charge failed (failures 1, reason kept)
clock +62s
sweep                        => reserve failed (failures 1, may have run, reason kept); unlocked;
                                due 92s; wake scheduler
wake                         => Undone; no longer due
