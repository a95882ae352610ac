# A task past its point of no return is not undone. It stops in Error, and the operator completes it.
# Neither `then undo` nor a command changes that.
workflow within 10m
  reserve: undo
  ship:    after reserve, point of no return
  invoice: after ship, then undo

submit reply_to shop         => Pending; due 30s
wake                         => Processing; request reserve #1 by 60s
agent completes reserve #1   => reserve completed (output kept); request ship #1 by 60s
agent completes ship #1      => ship completed (output kept); request invoice #1 by 60s
clock +1s
agent fails invoice #1 "no address"
                             => Error; invoice failed (failures 1, reason kept); due 31s;
                                notification to shop: error "not undone, past the point of no return ship:
                                step invoice: no address";
                                alert invoice "not undone, past the point of no return ship: step
                                invoice: no address"
ann undoes                   => refused: the task is past its point of no return, step ship
alert sent                   => ignored: NotDue
clock +1s
ann resubmits invoice        => Processing; task by 602s; invoice running (failures 0); due 62s;
                                request invoice #2 by 62s; published: resubmit invoice
agent completes invoice #2   => Processed; invoice completed (output kept); no longer due;
                                notification to shop: processed
ann undoes                   => refused: the task is past its point of no return, step ship
