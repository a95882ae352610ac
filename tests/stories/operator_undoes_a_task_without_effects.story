# A task without anything to undo is Undone as soon as the operator requests the undo.
workflow within 10m
  reserve: within 60s
  charge:  after reserve

submit                       => Pending; due 30s
wake                         => Processing; request reserve #1 by 60s
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 60s
agent completes charge #1    => Processed; charge completed (output kept); no longer due
ann undoes                   => Undone because "requested by ann: a test"; published: undo

submit                       => Pending; due 30s
wake                         => Processing; request reserve #1 by 60s
agent fails reserve #1 "no stock"
                             => Error; reserve failed (failures 1, reason kept);
                                alert reserve "step reserve: no stock"
ann undoes                   => Undone because "requested by ann: a test"; published: undo

submit                       => Pending; due 30s
wake                         => Processing; request reserve #1 by 60s
ann pauses                   => paused; due 60s; published: pause
agent completes reserve #1   => reserve completed (output kept)
ann undoes                   => Undoing because "requested by ann: a test"; due 3600s; published: undo
ann resumes                  => Undone; no longer paused; no longer due; published: resume
