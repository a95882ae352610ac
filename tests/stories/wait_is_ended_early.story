# An operator ends a wait early, or undoes the task during one; a pause suspends it.
workflow within 1h
  order: undo
  cool:  after order, wait 10m
  ship:  after cool

submit                       => Pending; due 30s
wake                         => Processing; request order #1 by 60s
agent completes order #1     => order completed (output kept); cool waiting until 600s;
                                wake scheduler in 600s
ann pauses because "a look"  => paused; due 3600s; published: pause
clock +610s
wake                         => ignored: NothingReady
ann resumes because "fine"   => task by 4210s; no longer paused; cool completed; due 640s;
                                request ship #1 by 670s; published: resume; wake scheduler
agent completes ship #1      => Processed; ship completed (output kept); no longer due

submit                       => Pending; due 640s
wake                         => Processing; request order #1 by 670s
agent completes order #1     => order completed (output kept); cool waiting until 1210s;
                                wake scheduler in 600s
ann resubmits cool because "it is cold"
                             => cool completed; due 670s; request ship #1 by 670s; published: resubmit cool
agent completes ship #1      => Processed; ship completed (output kept); no longer due

submit                       => Pending; due 640s
wake                         => Processing; request order #1 by 670s
agent completes order #1     => order completed (output kept); cool waiting until 1210s;
                                wake scheduler in 600s
ann undoes because "not wanted"
                             => Undoing because "requested by ann: not wanted"; cool skipped; due
                                670s; request undo of order #1 by 670s; published: undo
agent completes undo of order #1
                             => Undone; order undone (output kept); no longer due
