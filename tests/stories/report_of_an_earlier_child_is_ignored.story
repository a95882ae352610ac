# A report contains the id of the child task and its revision. A report of another child, or one that
# is older than the last failure report, is ignored.
workflow within 2h
  pack: workflow packing
  ship: after pack, then undo

# An edit of the input starts another child. The first child's report is redelivered while the second
# runs, and while it is undone.
submit with {"x":1}          => Pending; due 30s
wake                         => Processing; submit o-1:pack to packing with null
child o-1:pack at revision 3 of pack is Undone "no boxes"
                             => Error; pack failed (failures 1, reason kept); alert pack "step pack:
                                its child task was undone: no boxes"
ann resubmits pack with input {"a":1}
                             => Processing; pack running (failures 0); input {"x":1,"a":1} kept; due
                                60s; submit o-1:pack:c-1 to packing with null; published: resubmit pack
                                with edited input
child o-1:pack at revision 3 of pack is Undone "no boxes"
                             => ignored: StaleReply
child o-1:pack:c-1 at revision 4 of pack is Processed with {"box":1}
                             => pack completed (output kept); request ship #1 by 60s under key
                                o-1/ship/do/c-1
agent fails ship #1 "no lorry"
                             => Undoing because "step ship: no lorry"; ship failed (failures 1,
                                reason kept); submit o-1:pack:c-1 to packing with null, undo
child o-1:pack at revision 3 of pack is Undone "no boxes"
                             => ignored: StaleReply
child o-1:pack:c-1 at revision 6 of pack is Undone "asked to"
                             => Undone; pack completed; pack undone (output kept); no longer due

# The child was Processed and then undone. The older report arrives last.
submit                       => Pending; due 30s
wake                         => Processing; submit o-1:pack to packing with null
child o-1:pack at revision 5 of pack is Undone "asked for by ann"
                             => Error; pack failed (failures 1, reason kept); alert pack "step pack:
                                its child task was undone: asked for by ann"
ann resubmits pack           => Processing; pack running (failures 0); due 60s; submit o-1:pack to
                                packing with null; published: resubmit pack
child o-1:pack at revision 3 of pack is Processed with {"box":1}
                             => ignored: StaleReply
# The child is still Undone and reports it again.
child o-1:pack at revision 5 of pack is Undone "asked for by ann"
                             => Error; pack failed (failures 1, reason kept); due 30s; alert pack
                                "step pack: its child task was undone: asked for by ann"
