# In every state: callbacks and reports of child tasks that arrive too early, too late, or for the
# wrong step.
workflow within 2h
  approve: callback within 1h heartbeat every 10m, body ${ callback.token }, undo
  pack:    after approve, workflow packing, then undo
  plain:   after pack

submit                       => Pending; due 30s
callback completes approve => illegal: a callback to step `approve`, which never started
callback heartbeat for approve
                             => illegal: a callback to step `approve`, which never started
child of pack is Processed    => illegal: step `pack` runs no child task
wake                         => Processing; request approve #1 by 60s with "o-1/approve/i000000000"
callback heartbeat for approve
                             => ignored: StillAwaited
child of plain is Processed   => illegal: step `plain` runs no child task
agent completes approve #1   => approve awaiting callback until 600s
ann cancels because "wait"   => Error; alert "cancelled by ann: wait"; published: cancel
callback heartbeat for approve
                             => ignored: StillAwaited
clock +1s
callback heartbeat for approve
                             => approve awaiting callback until 601s
parent requests do             => ignored: Ended
callback completes approve => approve completed (output kept)
ann resubmits because "go"   => Processing; task by 7201s; due 61s;
                                submit o-1:pack to packing with null; published: resubmit
child of pack is Undone "no"  => Undoing because "step pack: its child task was undone: no"; pack
                                failed (failures 1, reason kept); request undo of approve #1 by 61s
callback completes approve => ignored: DuplicateReply
callback heartbeat for approve
                             => ignored: DuplicateReply
agent completes undo of approve #1
                             => Undone; approve undone (output kept); no longer due
callback completes approve => ignored: DuplicateReply
callback heartbeat for approve
                             => ignored: DuplicateReply
child of pack is Undone "no"  => ignored: DuplicateReply

submit                       => Pending; due 31s
wake                         => Processing; request approve #1 by 61s with "o-1/approve/i0000000rs"
agent completes approve #1   => approve awaiting callback until 601s
callback completes approve => approve completed (output kept); submit o-1:pack to packing with null
child of pack is Processed    => pack completed (output kept); request plain #1 by 61s
agent completes plain #1     => Processed; plain completed (output kept); no longer due
callback completes approve => ignored: DuplicateReply
callback heartbeat for approve
                             => ignored: DuplicateReply
child of pack is Processed    => ignored: DuplicateReply
parent requests do             => ignored: Ended
