# An item whose request cannot be created fails, and no other item starts.
workflow within 10m
  pick: for each ${ input.items } 3 at once, body ${ item.name }
  note: path /note

submit with {"items":[{"name":"tea"},{"nam":"ink"},{"name":"rye"}]}
                             => Pending; due 30s
wake                         => Error; pick running, 3 items; pick[0] waiting;
                                pick[1] failed (failures 1, reason kept); pick[2] waiting;
                                alert pick[1] "step pick[1]: expression `item.name`: there is no `name`"
wake => ignored: NothingReady
ann skips pick because "a typo"
                             => Processing; pick[1] skipped; due 60s;
                                request pick[0] #1 by 60s with "tea";
                                request pick[2] #1 by 60s with "rye"; request note #1 by 60s;
                                published: skip pick[1]
wake                         => ignored: NothingReady
agent completes note #1      => note completed (output kept)
agent completes pick[0] #1   => pick[0] completed (output kept)
agent completes pick[2] #1   => Processed; pick completed, 3 items; pick[2] completed (output kept);
                                no longer due
