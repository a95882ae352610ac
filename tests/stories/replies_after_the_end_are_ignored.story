# Replies to a Processed task change nothing.
workflow within 10m
  reserve: within 60s, undo

submit                       => Pending; due 30s
wake                         => Processing; request reserve #1 by 60s
agent completes reserve #1   => Processed; reserve completed (output kept); no longer due
agent fails reserve #1 "no stock"
                             => ignored: DuplicateReply
agent defers reserve #1 for 10s "breaker open"
                             => ignored: DuplicateReply
agent completes undo of reserve #1
                             => illegal: a reply to the undo of step `reserve`, which never started
agent fails undo of reserve #1 "gone"
                             => illegal: a reply to the undo of step `reserve`, which never started
agent defers undo of reserve #1 for 10s "breaker open"
                             => illegal: a reply to the undo of step `reserve`, which never started
ann undoes                   => Undoing because "requested by ann: a test"; due 60s; request undo of
                                reserve #1 by 60s; published: undo
agent completes undo of charge #1
                             => illegal: a reply to the undo of step `charge`, which never started
