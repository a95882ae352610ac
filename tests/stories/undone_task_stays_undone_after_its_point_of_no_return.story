# A refused point of no return takes effect after the task is Undone, although nothing had to be
# undone. No step starts: an operator reverts the effect, and ends the task.
workflow within 10m
  check: within 60s
  pay:   after check, within 60s, then undo, point of no return
  ship:  after pay

submit                       => Pending; due 30s
wake                         => Processing; request check #1 by 60s
agent completes check #1     => check completed (output kept); request pay #1 by 60s
agent fails pay #1 "HTTP 401"
                             => Undone because "step pay: HTTP 401"; pay failed (failures 1, reason kept); no
                                longer due
agent completes pay #1 => Error; the undo is final; pay completed (may have run, output kept); due 30s; alert: left to undo "step pay took effect after the task was undone"
agent completes pay #1 (redelivered)
                             => ignored: DuplicateReply; again alert: left to undo "step pay took effect
                                after the task was undone"
ann undoes                   => refused: the undo of the task failed: resubmit to continue it
ann resubmits                => Undone; published: resubmit
