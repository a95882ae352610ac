# The deferral of the point of no return may have run when another step fails, so no undo begins. The wait
# goes on, and the task ships after it.
workflow within 2h
  pay:    within 60s, point of no return
  cool:   wait 30m
  notify: within 300s, attempts 1, then undo
  ship:   after pay and cool

submit => Pending; due 30s
wake                         => Processing; cool waiting until 1800s; request pay #1 by 60s; request notify #1 by 300s
agent defers pay #1 for 10m "breaker open" => pay waiting until 600s (reason kept); wake scheduler in 600s
clock +120s
agent fails notify #1 "no address" => Error; task by 7322s; pay failed (may have run, call may be in progress until 122s); notify failed (failures 1, reason kept); due 150s; alert notify, pay "not undone, past the point of no return pay: step notify: no address"
ann completes pay            => pay completed (output kept); published: complete pay
ann skips notify             => Processing; notify skipped; due 1830s; published: skip notify
clock +1680s
wake                         => cool completed; request ship #1 by 1860s
