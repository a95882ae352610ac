# The task is Undone at once if no step completed or may have run, or if none of those steps has an
# undo.
workflow within 10m, with lifecycle events
  check:   within 30s
  reserve: after check, within 30s, attempts 1, then undo

submit reply_to shop         => Pending; due 30s
wake                         => Processing; request check #1 by 30s; event: submitted
agent completes check #1     => check completed (output kept); request reserve #1 by 30s;
                                event: check #1 completed
clock +1s
agent fails reserve #1 "no stock"
                             => Undone because "step reserve: no stock"; task by 601s;
                                reserve failed (failures 1, reason kept); no longer due;
                                notification to shop: undone "step reserve: no stock";
                                event: undone; event: reserve #1 failed
agent fails reserve #1 "no stock" (redelivered)
                             => ignored: DuplicateReply;
                                again notification to shop: undone "step reserve: no stock";
                                again event: undone; again event: reserve #1 failed

# If the supervisor starts the undo, it wakes the scheduler, which finds nothing to undo.
submit                       => Pending; due 31s
wake                         => Processing; request check #1 by 31s; event: submitted
agent completes check #1     => check completed (output kept); request reserve #1 by 31s;
                                event: check #1 completed
clock +32s
sweep                        => Undoing because "step reserve: no reply by complete-by, attempt 1";
                                task by 663s; reserve failed (failures 1, may have run, call may
                                be in progress until 63s, reason kept); unlocked; due 93s;
                                event: reserve #1 failed, may have run; wake scheduler in 30s
clock +30s
wake                         => Undone; no longer due; event: undone
wake (redelivered)           => ignored: Ended; again event: undone; again event: submitted;
                                again event: reserve #1 failed, may have run
