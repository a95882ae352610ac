# The point of no return is refused, and its late success cancels the undo. A concurrent wait goes on
# until then, so the task does not ship too early.
workflow within 2h
  pay:    within 60s, then undo, point of no return
  cool:   wait 30m
  notify: within 60s, undo
  ship:   after pay and cool

submit => Pending; due 30s
wake                         => Processing; cool waiting until 1800s; request pay #1 by 60s; request notify #1 by 60s
agent fails pay #1 "HTTP 401"  => Undoing because "step pay: HTTP 401"; pay failed (failures 1, reason kept)
agent completes pay #1 => Error; pay completed (may have run, output kept); alert "not undone, past the point of no return pay: step pay: HTTP 401"
agent completes notify #1     => notify completed (output kept)
ann resubmits pay => refused: step pay is completed: only a failed or waiting step can be resubmitted
agent completes pay #2 => illegal: a reply to attempt 2 at step `pay`; the newest is 1
clock +1800s
wake => ignored: NothingReady
