# Late effects in tasks that are paused or were cancelled.
workflow within 1h
  check:  undo
  pay:    after check, within 60s, then undo, point of no return
  mail:   after check, within 60s, then undo, undo

submit => Pending; due 30s
wake                         => Processing; request check #1 by 60s
agent completes check #1     => check completed (output kept); request pay #1 by 60s; request mail #1 by 60s
agent fails mail #1 "no"     => Undoing because "step mail: no"; mail failed (failures 1, reason kept)
ann pauses                   => paused; due 60s; published: pause
agent fails pay #1 "401"     => pay failed (failures 1, reason kept)
agent completes pay #1 => pay completed (may have run, output kept)
ann skips check              => refused: the undo of step check cannot begin: the point of no return runs or has run
ann resumes => Error; no longer paused; due 30s; alert mail "not undone, past the point of no return pay: step mail: no"; published: resume
ann undoes                   => refused: the task is past its point of no return, step pay
submit => Pending; due 30s
wake                         => Processing; request check #1 by 60s
agent completes check #1     => check completed (output kept); request pay #1 by 60s; request mail #1 by 60s
agent fails mail #1 "no"     => Undoing because "step mail: no"; mail failed (failures 1, reason kept)
agent fails pay #1 "401"     => pay failed (failures 1, reason kept); request undo of check #1 by 60s
ann pauses                   => paused; due 60s; published: pause
agent completes pay #1 => Error; no longer paused; the undo is final; pay completed (may have run, output kept); due 30s; alert: left to undo check "step pay took effect after the undo began"
agent completes mail #1 => mail completed (may have run, output kept); alert: left to undo check, mail "step mail took effect after the undo began; step pay took effect after the undo began"
agent completes undo of check #1 => check undone (output kept)
ann resubmits                => Undoing; due 60s; request undo of mail #1 by 60s; published: resubmit
agent completes undo of mail #1 => Undone; mail undone (output kept); no longer due
submit => Pending; due 30s
wake                         => Processing; request check #1 by 60s
agent completes check #1     => check completed (output kept); request pay #1 by 60s; request mail #1 by 60s
agent fails mail #1 "no"     => Undoing because "step mail: no"; mail failed (failures 1, reason kept)
ann cancels                  => Error; alert: left to undo check "cancelled by ann: a test"; published: cancel
agent completes pay #1       => pay completed (output kept)
ann skips check              => refused: the undo of step check cannot begin: the point of no return runs or has run
ann resubmits                => due 30s; alert mail "not undone, past the point of no return pay: step mail:
                                no"; published: resubmit
submit => Pending; due 30s
wake                         => Processing; request check #1 by 60s
agent completes check #1     => check completed (output kept); request pay #1 by 60s; request mail #1 by 60s
agent fails mail #1 "no"     => Undoing because "step mail: no"; mail failed (failures 1, reason kept)
agent fails pay #1 "401"     => pay failed (failures 1, reason kept); request undo of check #1 by 60s
ann cancels                  => Error; alert: left to undo check "cancelled by ann: a test"; published: cancel
agent completes mail #1 => mail completed (may have run, output kept); alert: left to undo check, mail "step mail took effect after the undo began; cancelled by ann: a test"
agent completes pay #1 => the undo is final; pay completed (may have run, output kept); alert: left to undo check, mail "step pay took effect after the undo began; step mail took effect after the undo began; cancelled by ann: a test"
ann resubmits                => Undoing; due 60s; request undo of mail #1 by 60s; published: resubmit
agent completes undo of check #1 => check undone (output kept)
agent completes undo of mail #1 => Undone; mail undone (output kept); no longer due
