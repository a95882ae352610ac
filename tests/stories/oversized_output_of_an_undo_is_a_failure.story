# The size of an undo's output is limited too.
workflow within 10m
  reserve: undo
  charge:  after reserve, then undo

submit                       => Pending; due 30s
wake                         => Processing; request reserve #1 by 60s
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 60s
agent fails charge #1 "card declined"
                             => Undoing because "step charge: card declined";
                                charge failed (failures 1, reason kept);
                                request undo of reserve #1 by 60s
clock +1s
agent completes undo of reserve #1 with 131073 bytes
                             => Error;
                                undo of reserve failed (failures 1, may have run, reason kept);
                                due 31s;
                                alert: left to undo reserve "undo of step reserve: an output of
                                131073 bytes; the limit is 131072"
