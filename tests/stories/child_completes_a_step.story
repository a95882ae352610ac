# A step can run a child task. The output of the child is the output of the step.
workflow within 2h
  pack: workflow packing, body {"items":"${ input.items }"}, within 30m, attempts 2
  ship: after pack, body ${ steps.pack.output }

submit with {"items":["tea"]}
                             => Pending; due 30s
wake                         => Processing; submit o-1:pack to packing with {"items":["tea"]}
wake (redelivered)           => ignored: NothingReady;
                                again submit o-1:pack to packing with {"items":["tea"]}
clock +1802s
sweep                        => pack waiting (failures 1, may have run, reason kept); unlocked;
                                due 1832s; wake scheduler
wake                         => submit o-1:pack to packing with {"items":["tea"]}
child of pack is Processed with {"parcel":3}
                             => pack completed (output kept); request ship #1 by 1862s with {"parcel":3}
child of pack is Processed with {"parcel":3} (redelivered)
                             => ignored: DuplicateReply;
                                again request ship #1 by 1862s with {"parcel":3}
child of ship is Processed    => illegal: step `ship` runs no child task
agent completes ship #1      => Processed; ship completed (output kept); no longer due
