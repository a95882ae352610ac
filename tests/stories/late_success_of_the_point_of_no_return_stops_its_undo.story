# The request of the point of no return was delivered twice. One agent's call fails and the other
# agent's call completes, after the undo of another step has begun. Nothing can complete the task as a
# whole then, so an operator reverts the payment, and the undo continues.
workflow within 10m
  check: undo
  pay:   after check, within 60s, then undo, point of no return

submit                       => Pending; due 30s
wake                         => Processing; request check #1 by 60s
agent completes check #1     => check completed (output kept); request pay #1 by 60s
agent fails pay #1 "HTTP 401"
                             => Undoing because "step pay: HTTP 401"; pay failed (failures 1, reason
                                kept); request undo of check #1 by 60s
agent completes pay #1 => Error; the undo is final; pay completed (may have run, output kept); alert: left to undo check "step pay took effect after the undo began"
agent completes undo of check #1
                             => check undone (output kept)
ann resubmits                => Undone; published: resubmit
