# Callbacks of steps that were given up come while the undo runs, and after the task is Undone.
workflow within 2h
  check:   undo
  approve: after check, callback within 1h, within 20s, then undo, undo, body ${ callback.token }
  ask:     after check, callback within 1h, within 20s, then undo, body ${ callback.token }
  notify:  after check, within 60s, then undo

submit                       => Pending; due 20s
wake                         => Processing; request check #1 by 60s
agent completes check #1     => check completed (output kept); request approve #1 by 20s with "o-1/approve/i000000000"; request ask #1 by 20s with "o-1/ask/i000000000"; request notify #1 by 60s
agent fails approve #1 "401" => Undoing because "step approve: 401"; approve failed (failures 1, reason kept)
agent completes ask #1       => ask failed (failures 1, may have run, reason kept)
agent completes notify #1    => notify completed (output kept); request undo of check #1 by 60s
callback completes approve => approve completed (may have run, output kept); request undo of approve #1 by 60s
callback completes ask    => ask completed (output kept)
agent completes undo of approve #1 => approve undone (output kept)
agent completes undo of check #1 => Undone; check undone (output kept); no longer due
callback completes ask    => ignored: DuplicateReply
submit                       => Pending; due 20s
wake                         => Processing; request check #1 by 60s
agent completes check #1     => check completed (output kept); request approve #1 by 20s with "o-1/approve/i000000000"; request ask #1 by 20s with "o-1/ask/i000000000"; request notify #1 by 60s
agent fails ask #1 "401"     => Undoing because "step ask: 401"; ask failed (failures 1, reason kept)
agent completes approve #1   => approve failed (failures 1, may have run, reason kept); request undo of approve #1 by 60s
agent completes notify #1    => notify completed (output kept)
agent completes undo of approve #1 => approve undone (output kept); request undo of check #1 by 60s
agent completes undo of check #1 => Undone; check undone (output kept); no longer due
callback completes ask    => Error; the undo is final; ask completed (may have run, output kept); due 30s; alert: left to undo "step ask took effect after the task was undone"
callback completes ask (redelivered)   => ignored: DuplicateReply; again alert: left to undo "step ask took effect after the task was undone"
callback completes approve    => ignored: DuplicateReply
ann resubmits                => Undone; published: resubmit
submit                       => Pending; due 20s
wake                         => Processing; request check #1 by 60s
agent completes check #1     => check completed (output kept); request approve #1 by 20s with "o-1/approve/i000000000"; request ask #1 by 20s with "o-1/ask/i000000000"; request notify #1 by 60s
agent fails approve #1 "401" => Undoing because "step approve: 401"; approve failed (failures 1, reason kept)
agent completes ask #1       => ask failed (failures 1, may have run, reason kept)
agent completes notify #1    => notify completed (output kept); request undo of check #1 by 60s
agent completes undo of check #1 => Undone; check undone (output kept); no longer due
callback fails approve "no" => Undoing; the undo is final; approve failed (may have run); due 60s; request undo of approve #1 by 60s
callback completes approve   => ignored: DuplicateReply
clock +70s
wake => ignored: NothingReady
agent completes undo of approve #1 => Undone; approve undone (output kept); no longer due
