# Each item is a part of its step: two run concurrently, and their outputs keep the order of the list.
workflow within 10m
  pick: for each ${ input.items } 2 at once, within 20s, attempts 2, path /pick, body ${ item }
  ship: after pick, body ${ steps.pick.output }

submit with {"items":["tea","ink","rye"]}
                             => Pending; due 20s
wake                         => Processing; pick running, 3 items; request pick[0] #1 by 20s with "tea";
                                request pick[1] #1 by 20s with "ink"
agent completes pick[1] #1 with "I"
                             => pick[1] completed (output kept); request pick[2] #1 by 20s with "rye"
agent completes pick[1] #1 with "I" (redelivered)
                             => ignored: DuplicateReply; again request pick[2] #1 by 20s with "rye"
clock +22s
sweep                        => pick[0] waiting (failures 1, may have run, call may be in progress until 42s,
                                reason kept); pick[2] waiting (failures 1, may have run, call may
                                be in progress until 42s, reason kept); unlocked; due 52s; wake scheduler
wake                         => due 42s; request pick[0] #2 by 42s with "tea";
                                request pick[2] #2 by 42s with "rye"
agent completes pick[0] #1 with "late"
                             => pick[0] completed (call may be in progress until 64s, output kept)
agent completes pick[0] #2 with "T"
                             => ignored: DuplicateReply
agent completes pick[2] #2 with "R"
                             => pick completed, 3 items; pick[2] completed (call may be in progress until 64s, output kept); request ship #1 by 82s with ["late","I","R"]
agent completes pick[2] #2 with "R" (redelivered)
                             => ignored: DuplicateReply; again request ship #1 by 82s with ["late","I","R"]
agent completes pick[3] #1   => illegal: a reply to step `pick[3]`, which never started
agent completes pick #1      => illegal: a reply to step `pick`, which never started
agent completes ship #1      => Processed; ship completed (output kept); no longer due
