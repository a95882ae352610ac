# A refusal belongs to one submission of a child task. A copy of an old refusal does not fail the
# attempt whose submission was accepted.
timing   clock skew 2s, pickup within 30s
workflow within 10m
  pack: workflow packing, within 60s

submit                       => Pending; due 30s
wake                         => Processing; submit o-1:pack to packing with null
child of pack #1 is refused "there is no workflow `packing`"
                             => Error; pack failed (failures 1, may have run, reason kept); alert
                                pack "step pack: its child task was refused: there is no workflow
                                `packing`"
ann resubmits                => Processing; pack running (failures 0); due 60s; submit o-1:pack to
                                packing with null; published: resubmit pack
child of pack #1 is refused "there is no workflow `packing`"
                             => ignored: StaleReply
child of pack #1 is refused "there is no workflow `packing`" (redelivered)
                             => ignored: StaleReply
child of pack is Processed with {"boxes":1}
                             => Processed; pack completed (output kept); no longer due
