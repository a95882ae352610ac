# A step whose `when` is false is skipped, and its output is null. The next step starts in the same
# save.
workflow within 10m
  check:   undo
  drone:   after check, when ${ steps.check.output.air }, undo
  pack:    after drone, when ${ steps.drone.output != null }
  van:     after check, when ${ !steps.check.output.air }, undo
  deliver: after pack and van, body ${ steps.drone.output }, then undo

submit                       => Pending; due 30s
wake                         => Processing; request check #1 by 60s
agent completes check #1 with {"air":false}
                             => check completed (output kept); drone skipped; pack skipped;
                                request van #1 by 60s
agent completes check #1 with {"air":false} (redelivered)
                             => ignored: DuplicateReply; again request van #1 by 60s
agent completes van #1       => van completed (output kept); request deliver #1 by 60s with null
agent fails deliver #1 "nobody there"
                             => Undoing because "step deliver: nobody there";
                                deliver failed (failures 1, reason kept); request undo of van #1 by 60s
agent completes undo of van #1
                             => van undone (output kept); request undo of check #1 by 60s
agent completes undo of check #1
                             => Undone; check undone (output kept); no longer due
