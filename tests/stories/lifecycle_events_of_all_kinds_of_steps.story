# Of a step with for_each there is one event when all its items have completed, and one for each item that failed. Waits
# complete without an attempt. Skipped steps and undos have no events.
workflow within 10m, with lifecycle events
  pick:  for each ${ input.items } 2 at once
  cool:  after pick, wait 10s
  gift:  after pick, when ${ false }
  ship:  after cool

submit with {"items":[1,2,3]}
                             => Pending; due 30s
wake                         => Processing; pick running, 3 items; request pick[0] #1 by 60s;
                                request pick[1] #1 by 60s; event: submitted
agent completes pick[0] #1   => pick[0] completed (output kept); request pick[2] #1 by 60s
agent completes pick[1] #1   => pick[1] completed (output kept)
agent fails pick[2] #1 "no"  => Error; pick[2] failed (failures 1, reason kept); alert pick[2] "step pick[2]: no";
                                event: error; event: pick[2] #1 failed
agent fails pick[2] #1 "no" (redelivered)
                             => ignored: DuplicateReply; again alert pick[2] "step pick[2]: no";
                                again event: error; again event: pick[2] #1 failed
ann resubmits pick because "again"
                             => Processing; pick[2] running (failures 0); due 60s; request pick[2] #2 by 60s;
                                published: resubmit pick[2]
agent completes pick[2] #2   => pick completed, 3 items; pick[2] completed (output kept); cool waiting until 10s;
                                gift skipped; due 40s; event: pick completed; wake scheduler in 10s
agent completes pick[2] #2 (redelivered)
                             => ignored: DuplicateReply; again event: pick completed;
                                again wake scheduler in 10s
clock +10s
wake                         => cool completed; request ship #1 by 70s; event: cool completed
wake (redelivered)           => ignored: NothingReady; again request ship #1 by 70s; again event: submitted;
                                again event: cool completed; again event: pick completed
agent fails ship #1 "no"     => Error; ship failed (failures 1, reason kept); alert ship "step ship: no";
                                event: error; event: ship #1 failed
ann completes ship with 1 because "by hand"
                             => Processed; task by 610s; ship completed (output kept); event: processed; event:
                                ship #2 completed by an operator; published: complete ship
