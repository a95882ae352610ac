# An operator runs a task that has ended again as a new task. From a step on, the new task keeps the outputs of the other steps.
workflow within 10m
  reserve: within 60s, undo (within 20s)
  charge:  after reserve, within 60s

submit with {"item":"tea"}   => Pending; due 30s
ann reruns                   => refused: the task is Pending: only a task that has ended can be run again
wake                         => Processing; request reserve #1 by 60s
ann reruns                   => refused: the task is Processing: only a task that has ended can be run again
agent completes reserve #1 with {"id":7}
                             => reserve completed (output kept); request charge #1 by 60s
agent completes charge #1    => Processed; charge completed (output kept); no longer due
ann reruns charge because "the parcel was lost"
                             => submit o-1-rerun-1 to order with {"item":"tea"}, keeps {"reserve":{"id":7}};
                                published: rerun from charge
repeat command               => ignored: DuplicateCommand
repeat command (redelivered)
                             => ignored: DuplicateCommand;
                                again submit o-1-rerun-1 to order with {"item":"tea"}, keeps {"reserve":{"id":7}};
                                again published: rerun from charge
ann reruns                   => refused: the task was run again as o-1-rerun-1 already: name another id
ann undoes                   => Undoing because "requested by ann: a test"; due 20s; request undo of reserve #1 by 20s;
                                published: undo
ann reruns charge            => refused: the task is Undoing: only a task that has ended can be run again

submit with {"item":"tea"}   => Pending; due 30s
wake                         => Processing; request reserve #1 by 60s
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 60s
ann undoes                   => Undoing because "requested by ann: a test"; due 60s; published: undo
agent fails charge #1 "no"   => charge failed (failures 1, reason kept); due 20s; request undo of reserve #1 by 20s
agent completes undo of reserve #1
                             => Undone; reserve undone (output kept); no longer due
ann reruns charge            => refused: step reserve was undone, so that its output cannot be kept: run the task again from it, or as a whole
ann reruns                   => submit o-1-rerun-1 to order with {"item":"tea"}; published: rerun

submit with {"item":"tea"}   => Pending; due 30s
wake                         => Processing; request reserve #1 by 60s
agent fails reserve #1 "no stock"
                             => Error; reserve failed (failures 1, reason kept); alert reserve "step reserve: no stock"
ann reruns charge            => refused: step reserve is failed, so that it has no output to keep: run the task again from it, or as a whole
ann reruns pack              => refused: the workflow has no step pack
ann reruns reserve           => settled; submit o-1-rerun-1 to order with {"item":"tea"}; published: rerun from reserve
