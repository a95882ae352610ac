# In every state: answers and ends of tasks that come too early, too late, or to the wrong step.
workflow within 2h
  approve: callback within 1h heard every 10m, body ${ callback.token }, undo
  pack:    after approve, workflow packing, then undo
  plain:   after pack

submit                       => Pending; due 30s
someone completes approve #1 => illegal: a callback to step `approve`, which never started
someone is still at approve #1
                             => illegal: a callback to step `approve`, which never started
task of pack is Processed    => illegal: step `pack` runs no child task
wake                         => Processing; request approve #1 by 60s with "o-1/approve/i000000000"
someone is still at approve #0
                             => illegal: a callback to attempt 0 at step `approve`; the newest is 1
task of plain is Processed   => illegal: step `plain` runs no child task
agent completes approve #1   => approve handed out until 600s
ann cancels because "wait"   => Error; alert "cancelled by ann: wait"; told: cancel
someone is still at approve #1
                             => ignored: StillAwaited
clock +1s
someone is still at approve #1
                             => approve handed out until 601s
asked to be done             => ignored: Ended
someone completes approve #1 => approve completed (output kept)
ann resubmits because "go"   => Processing; task by 7201s; due 61s;
                                submit o-1:pack to packing with null; told: resubmit
task of pack is Undone "no"  => Undoing because "step pack: its child task was undone: no"; pack
                                failed (failures 1, reason kept); request undo of approve #1 by 61s
someone completes approve #1 => ignored: DuplicateReply
someone is still at approve #1
                             => ignored: DuplicateReply
agent completes undo of approve #1
                             => Undone; approve undone (output kept); no longer due
someone completes approve #1 => ignored: DuplicateReply
someone is still at approve #1
                             => ignored: DuplicateReply
task of pack is Undone "no"  => ignored: DuplicateReply

submit                       => Pending; due 31s
wake                         => Processing; request approve #1 by 61s with "o-1/approve/i0000000rs"
agent completes approve #1   => approve handed out until 601s
someone completes approve #1 => approve completed (output kept); submit o-1:pack to packing with null
task of pack is Processed    => pack completed (output kept); request plain #1 by 61s
agent completes plain #1     => Processed; plain completed (output kept); no longer due
someone completes approve #1 => ignored: DuplicateReply
someone is still at approve #1
                             => ignored: DuplicateReply
task of pack is Processed    => ignored: DuplicateReply
asked to be done             => ignored: Ended
