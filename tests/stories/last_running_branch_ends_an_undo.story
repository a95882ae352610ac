# The task is Undone when nothing is left to undo and the last branch has replied.
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
sweep                        => task by 722s; reserve failed (failures 1, may have run, call may
                                be in progress until 122s, reason kept); unlocked; due 152s; wake scheduler in
                                60s
clock +60s
wake                         => Undone; no longer due
