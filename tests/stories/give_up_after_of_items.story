# Each item has its own time, from its start.
workflow within 1h
  ship: for each ${ [1, 2, 3] } 1 at once, within 20s, gives up after 60s

submit                       => Pending; due 20s
wake                         => Processing; ship running, 3 items; request ship[0] #1 by 20s
clock +10s
agent completes ship[0] #1   => ship[0] completed (output kept); request ship[1] #1 by 30s
agent defers ship[1] #1 for 55s "busy"
                             => ship[1] waiting until 65s (reason kept); wake scheduler in 55s
clock +55s
wake                         => ship[1] running (may have run, call may be in progress until 52s); request
                                ship[1] #2 by 70s
agent completes ship[1] #2   => ship[1] completed (output kept); request ship[2] #1 by 85s
agent defers ship[2] #1 for 1m "busy"
                             => Error; ship[2] failed (failures 1, may have run, call may be in progress until
                                107s, reason kept); due 95s; alert ship[2] "step ship[2]: has to wait 1m, past
                                `give_up_after`: busy"
