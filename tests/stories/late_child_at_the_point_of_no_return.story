# A child task at the point of no return is undone, and then reports that it is Processed.
workflow within 2h
  check: undo
  pack:  after check, workflow packing, then undo, point of no return
  note:  after check, within 60s, then undo

submit => Pending; due 30s
wake                         => Processing; request check #1 by 60s
agent completes check #1     => check completed (output kept); submit o-1:pack to packing with null; request note #1 by 60s
agent completes note #1     => note completed (output kept)
child of pack is refused "no", id taken => Undoing because "step pack: its child task was refused: no"; pack failed (failures 1, reason kept); request undo of check #1 by 60s
child of pack is Processed   => Error; the undo is final; pack completed (may have run, output kept); alert: left to undo check, pack "step pack took effect after the undo began"
child of pack is Processed   => ignored: DuplicateReply
agent completes undo of check #1 => check undone (output kept)
ann resubmits                => Undoing; due 7200s; submit o-1:pack to packing with null, undo; published: resubmit
child of pack is Undone "a"  => Undone; pack undone (output kept); no longer due
submit => Pending; due 30s
wake                         => Processing; request check #1 by 60s
agent completes check #1     => check completed (output kept); submit o-1:pack to packing with null; request note #1 by 60s
agent fails note #1 "no"     => Undoing because "step note: no"; note failed (failures 1, reason kept)
child o-1:pack at revision 5 of pack is Undone "b" => pack failed (failures 1, reason kept); request undo of check #1 by 60s
agent completes undo of check #1 => Undone; check undone (output kept); no longer due
child o-1:pack at revision 3 of pack is Processed => ignored: StaleReply
child o-1:pack at revision 7 of pack is in Error "x", not undone => Error; the undo is final; pack failed (may have run); due 30s; alert: left to undo pack "step pack took effect after the task was undone"
ann resubmits                => Undoing; due 7200s; submit o-1:pack to packing with null, undo; published: resubmit
child o-1:pack at revision 7 of pack is in Error "x", not undone => Error; undo of pack failed (failures 1, may have run, reason kept); due 30s; alert: left to undo pack "undo of step pack: its child task is in Error: x"
child o-1:pack at revision 9 of pack is Undone "c" => pack failed
ann resubmits                => Undoing; undo of pack running (failures 0); due 7200s; submit o-1:pack to packing with null, undo; published: resubmit pack
child o-1:pack at revision 9 of pack is Undone "c" => Undone; pack undone (output kept); no longer due
