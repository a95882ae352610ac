# A command names an item, or applies to the only item that failed. If it names a step, it applies to
# all of its failed items.
workflow within 10m
  pick: for each ${ input.items } 3 at once, body ${ item }
  ship: after pick, body ${ steps.pick.output }

submit with {"items":["tea","ink","rye"]}
                             => Pending; due 30s
wake                         => Processing; pick running, 3 items; request pick[0] #1 by 60s with "tea";
                                request pick[1] #1 by 60s with "ink";
                                request pick[2] #1 by 60s with "rye"
agent fails pick[0] #1 "no"  => Error; pick[0] failed (failures 1, reason kept);
                                alert pick[0] "step pick[0]: no"
agent fails pick[1] #1 "no"  => pick[1] failed (failures 1, reason kept)
ann skips pick because "one of them"
                             => refused: several steps failed: name one of pick[0], pick[1]
ann completes pick[1] with "by hand" because "found it"
                             => pick[1] completed (output kept); published: complete pick[1]
ann completes pick[7] with 1 because "a typo"
                             => refused: item pick[7] has not started
ann completes ship[0] with 1 because "a typo"
                             => refused: step ship has no items
ann resubmits pick because "there is more"
                             => Processing; pick[0] running (failures 0); request pick[0] #2 by 60s with "tea";
                                published: resubmit pick[0]
agent completes pick[0] #2 with "T"
                             => pick[0] completed (output kept)
ann skips pick[2] because "not wanted"
                             => refused: step pick[2] is running
agent fails pick[2] #1 "no"  => Error; pick[2] failed (failures 1, reason kept); due 30s;
                                alert pick[2] "step pick[2]: no"
ann skips pick because "the only one"
                             => Processing; pick completed, 3 items; pick[2] skipped; due 60s;
                                request ship #1 by 60s with ["T","by hand",null]; published: skip pick[2]
agent completes ship #1      => Processed; ship completed (output kept); no longer due
ann completes pick with [] because "too late"
                             => refused: the task is Processed
