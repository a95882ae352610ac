# As in impossible_request_of_the_next_step, but the policy undoes the task. The decision does not
# have the documents that the undo reads, so the scheduler is woken for the undo.
workflow within 10m
  reserve: within 20s, attempts 2, backoff from 60s, undo, then undo, body ${ input.item }
  charge:  after reserve, path ${ steps.reserve.output.path }, then undo
  invoice: after charge, body ${ input.item }, then undo

submit with {}               => Pending; due 20s
wake                         => Undoing because "step reserve: expression `input.item`: there is no
                                `item`"; reserve failed (failures 1, reason kept); wake scheduler
wake (redelivered)           => Undone; no longer due
clock +32s
sweep                        => ignored: Ended
wake                         => ignored: Ended

submit with {"item":"tea"}   => Pending; due 52s
wake                         => Processing; request reserve #1 by 52s with "tea"
agent completes reserve #1 with {}
                             => Undoing because "step charge: expression
                                `steps.reserve.output.path`: there is no `path`";
                                reserve completed (output kept);
                                charge failed (failures 1, reason kept); wake scheduler
wake                         => request undo of reserve #1 by 92s
agent completes undo of reserve #1
                             => Undone; reserve undone (output kept); no longer due

submit with {"item":"tea"}   => Pending; due 52s
wake                         => Processing; request reserve #1 by 52s with "tea"
agent defers reserve #1 for 60s "breaker open"
                             => reserve waiting until 92s (reason kept); wake scheduler in 60s
clock +42s
ann resubmits with input {"item":null}, it did not run
                             => Undoing because "step reserve: expression `input.item`: there is no
                                `item`"; task by 674s; reserve failed (failures 1, reason kept);
                                input {} kept; due 104s; published: resubmit reserve with edited input;
                                wake scheduler
wake                         => Undone; no longer due

submit with {"item":"tea"}   => Pending; due 94s
wake                         => Processing; request reserve #1 by 94s with "tea"
clock +22s
sweep                        => reserve waiting until 156s (failures 1, may have run, call may be in progress
                                until 116s, reason kept); unlocked; due 186s; wake scheduler in 60s
clock +20s
ann skips reserve, it did not run
                             => Undoing because "step charge: expression
                                `steps.reserve.output.path`: there is no `path`"; task by 716s;
                                reserve skipped (did not run); charge failed (failures 1, reason
                                kept); due 146s; published: skip reserve; wake scheduler
wake                         => Undone; no longer due

submit with {"item":"tea"}   => Pending; due 136s
wake                         => Processing; request reserve #1 by 136s with "tea"
clock +22s
sweep                        => reserve waiting until 198s (failures 1, may have run, call may be in progress
                                until 158s, reason kept); unlocked; due 228s; wake scheduler in 60s
ann completes reserve with {}
                             => Undoing because "step charge: expression
                                `steps.reserve.output.path`: there is no `path`"; task by 758s;
                                reserve completed (output kept); charge failed (failures 1, reason
                                kept); due 168s; published: complete reserve; wake scheduler; wake
                                scheduler in 20s
clock +20s
wake                         => request undo of reserve #1 by 218s
agent completes undo of reserve #2
                             => illegal: a reply to attempt 2 at the undo of step `reserve`; the
                                newest is 1

submit with {"item":"tea"}   => Pending; due 178s
wake                         => Processing; request reserve #1 by 178s with "tea"
ann pauses                   => paused; published: pause
agent completes reserve #1 with {}
                             => reserve completed (output kept)
ann resumes                  => Undoing because "step charge: expression
                                `steps.reserve.output.path`: there is no `path`"; no longer paused;
                                charge failed (failures 1, reason kept); due 188s; published: resume;
                                wake scheduler
wake                         => request undo of reserve #1 by 218s
agent completes undo of reserve #1
                             => Undone; reserve undone (output kept); no longer due

submit with {}               => Pending; due 178s
ann pauses                   => paused; due 3758s; published: pause
ann resumes                  => Undoing because "step reserve: expression `input.item`: there is no
                                `item`"; no longer paused; reserve failed (failures 1, reason kept);
                                due 188s; published: resume; wake scheduler
wake                         => Undone; no longer due

# A task in Error that the operator settles.
submit with {"item":"tea"}   => Pending; due 178s
wake                         => Processing; request reserve #1 by 178s with "tea"
ann cancels                  => Error; due 188s; alert "cancelled by ann: a test"; published: cancel
agent defers reserve #1 for 60s "breaker open"
                             => reserve waiting until 218s (reason kept)
clock +42s
ann resubmits with input {"item":null}, it did not run
                             => Undoing because "step reserve: expression `input.item`: there is no
                                `item`"; task by 800s; reserve failed (failures 1, reason kept);
                                input {} kept; due 230s; published: resubmit reserve with edited input;
                                wake scheduler
wake                         => Undone; no longer due

submit with {"item":"tea"}   => Pending; due 220s
wake                         => Processing; request reserve #1 by 220s with "tea"
ann cancels                  => Error; due 230s; alert "cancelled by ann: a test"; published: cancel
agent defers reserve #1 for 60s "breaker open"
                             => reserve waiting until 260s (reason kept)
ann skips reserve            => Undoing because "step charge: expression `steps.reserve.output.path`: there is
                                no `path`"; task by 842s; reserve skipped (may have run, call may be in progress
                                until 242s); charge failed (failures 1, reason kept); due 230s; published: skip
                                reserve; wake scheduler; wake scheduler in 42s
clock +42s
wake                         => request undo of reserve #1 by 302s

submit with {"item":"tea"}   => Pending; due 262s
wake                         => Processing; request reserve #1 by 262s with "tea"
ann cancels                  => Error; due 272s; alert "cancelled by ann: a test"; published: cancel
agent defers reserve #1 for 60s "breaker open"
                             => reserve waiting until 302s (reason kept)
ann completes reserve with {}
                             => Undoing because "step charge: expression `steps.reserve.output.path`: there is
                                no `path`"; task by 884s; reserve completed (call may be in progress until 284s,
                                output kept); charge failed (failures 1, reason kept); due 272s; published:
                                complete reserve; wake scheduler; wake scheduler in 42s
clock +42s
wake                         => request undo of reserve #1 by 344s
agent completes undo of reserve #2
                             => illegal: a reply to attempt 2 at the undo of step `reserve`; the
                                newest is 1
