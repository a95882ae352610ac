# The point of no return may have run when the parent of a task requests its undo, which has begun for another reason.
workflow within 10m
  ship:    within 30s, point of no return
  invoice: within 30s, attempts 1, then undo

submit for pack of p-1       => Pending; due 30s
wake                         => Processing; request ship #1 by 30s; request invoice #1 by 30s
agent fails invoice #1 "no"  => Undoing because "step invoice: no"; invoice failed (failures 1, reason kept)
clock +40s
sweep                        => task by 662s;
                                ship failed (failures 1, may have run, call may be in progress until 62s, reason kept);
                                unlocked; due 70s; wake scheduler; wake scheduler in 22s
parent requests undo         => Error;
                                alert invoice, ship "not undone, past the point of no return ship: step invoice: no";
                                report to pack of p-1: in Error "not undone, past the point of no return ship: step invoice: no", not undone
