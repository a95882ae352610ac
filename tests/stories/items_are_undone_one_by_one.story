# An item that fails undoes the task. Items that ran or may have run are undone with the same
# concurrency limit.
workflow within 10m
  pick: for each ${ input.items } 2 at once, within 20s, then undo, body ${ item },
        undo (body {"item":"${ item }","was":"${ steps.pick.output }"})

submit with {"items":["tea","ink","rye","gin"]}
                             => Pending; due 20s
wake                         => Processing; pick running, 4 items; request pick[0] #1 by 20s with "tea";
                                request pick[1] #1 by 20s with "ink"
agent completes pick[0] #1 with "T"
                             => pick[0] completed (output kept); request pick[2] #1 by 20s with "rye"
agent completes pick[1] #1 with "I"
                             => pick[1] completed (output kept); request pick[3] #1 by 20s with "gin"
agent fails pick[2] #1 "none left"
                             => Undoing because "step pick[2]: none left";
                                pick[2] failed (failures 1, reason kept);
                                request undo of pick[0] #1 by 60s with {"item":"tea","was":"T"};
                                request undo of pick[1] #1 by 60s with {"item":"ink","was":"I"}
agent completes undo of pick[0] #1
                             => pick[0] undone (output kept)
agent completes pick[3] #1 with "G"
                             => pick[3] completed (output kept);
                                request undo of pick[3] #1 by 60s with {"item":"gin","was":"G"}
agent completes undo of pick[1] #1
                             => pick[1] undone (output kept)
agent completes undo of pick[3] #1
                             => Undone; pick[3] undone (output kept); no longer due
