# Branches are undone concurrently, and the step before them when both are undone.
workflow within 10m
  check:   undo
  reserve: after check, undo
  invoice: after check, undo
  ship:    after reserve and invoice, undo
  notify:  after ship, then undo

submit                       => Pending; due 30s
wake                         => Processing; request check #1 by 60s
agent completes check #1     => check completed (output kept); request reserve #1 by 60s;
                                request invoice #1 by 60s
agent completes reserve #1   => reserve completed (output kept)
agent completes invoice #1   => invoice completed (output kept); request ship #1 by 60s
agent completes ship #1      => ship completed (output kept); request notify #1 by 60s
agent fails notify #1 "no address"
                             => Undoing because "step notify: no address";
                                notify failed (failures 1, reason kept);
                                request undo of ship #1 by 60s
agent completes undo of ship #1
                             => ship undone (output kept); request undo of reserve #1 by 60s;
                                request undo of invoice #1 by 60s
agent completes undo of reserve #1
                             => reserve undone (output kept)
wake                         => ignored: NothingReady
agent completes undo of invoice #1
                             => invoice undone (output kept); request undo of check #1 by 60s
agent completes undo of check #1
                             => Undone; check undone (output kept); no longer due
