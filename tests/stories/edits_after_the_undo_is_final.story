# An edit of the input after the undo is final does not make the task go forward.
workflow within 10m
  check: within 60s, body ${ input.n }, undo (body ${ input.n })
  pay:   within 60s, then undo, point of no return, body ${ input.n }, undo (body ${ input.n })
  ship:  after pay and check

submit with {"n":1}          => Pending; due 30s
wake                         => Processing; request check #1 by 60s with 1; request pay #1 by 60s with 1
agent completes check #1     => check completed (output kept)
agent fails pay #1 "HTTP 401" => Undoing because "step pay: HTTP 401"; pay failed (failures 1, reason kept); request undo of check #1 by 60s with 1
agent fails undo of check #1 "no" => Error; undo of check failed (failures 1, reason kept); alert: left to undo check "undo of step check: no"
agent completes pay #1 => the undo is final; pay completed (may have run, output kept); alert: left to undo check, pay "step pay took effect after the undo began; undo of step check: no"
alert sent                   => no longer due
ann resubmits with input {"n":2} => Undoing; undo of check running (failures 0); input {"n":2} kept; due 60s; request undo of check #2 by 60s with 2 under key o-1/check/undo/c-1; request undo of pay #1 by 60s with 1; published: resubmit check with edited input
agent fails undo of check #2 "no" => Error; undo of check failed (failures 1, reason kept); due 30s; alert: left to undo check, pay "undo of step check: no"
ann skips                    => Undoing; undo of check skipped; published: skip check
agent fails undo of pay #1 "no" => Error; undo of pay failed (failures 1, reason kept); due 30s; alert: left to undo pay "undo of step pay: no"
ann resubmits pay, it did not run => Undoing; undo of pay running (failures 0); due 60s; request undo of pay #2 by 60s with 1; published: resubmit pay
agent fails undo of pay #2 "no" => Error; undo of pay failed (failures 1, reason kept); due 30s; alert: left to undo pay "undo of step pay: no"
ann undoes                   => refused: the undo of the task failed: resubmit to continue it
ann cancels                  => refused: the task is Error
ann completes ship           => refused: step ship has nothing to undo
ann resubmits ship           => refused: step ship has nothing to undo
ann completes pay            => Undone; pay undone (output kept); published: complete pay
agent completes pay #1       => ignored: DuplicateReply
ann resubmits                => refused: the task is Undone
