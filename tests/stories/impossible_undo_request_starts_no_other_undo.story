# If the request of an undo cannot be created, no other undo starts. The others start when the
# operator has settled it.
workflow within 10m
  reserve: undo
  invoice: undo (body ${ input.address })
  charge:  after reserve and invoice, then undo

submit with {}               => Pending; due 30s
wake                         => Processing; request reserve #1 by 60s; request invoice #1 by 60s
agent completes reserve #1   => reserve completed (output kept)
agent completes invoice #1   => invoice completed (output kept); request charge #1 by 60s
clock +1s
agent fails charge #1 "card declined"
                             => Error because "step charge: card declined"; task by 601s;
                                undo of invoice failed (failures 1, reason kept);
                                charge failed (failures 1, reason kept); due 31s;
                                alert: left to undo reserve, invoice "undo of step invoice:
                                expression `input.address`: there is no `address`"
alert sent                   => no longer due
ann skips invoice because "there is no invoice"
                             => Undoing; undo of invoice skipped; due 61s;
                                request undo of reserve #1 by 61s; published: skip invoice
agent completes undo of reserve #1
                             => Undone; reserve undone (output kept); no longer due
