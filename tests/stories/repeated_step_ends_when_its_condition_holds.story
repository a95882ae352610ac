# A step is repeated until a condition holds. Each round gets the output of the round before, and the output of the step is that
# of the last one.
workflow within 10m
  pages: repeat until ${ item.next == null } at most 3, within 20s, attempts 1, then undo, body ${ item.next },
         undo (body ${ item.next })
  ship:  after pages, body ${ steps.pages.output }

submit with {"next":1}
                             => Pending; due 20s
wake                         => Processing; pages running, 1 items; request pages[0] #1 by 20s with 1
agent completes pages[0] #1 with {"next":2}
                             => pages[0] completed (output kept); request pages[1] #1 by 20s with 2
agent completes pages[1] #1 with {"next":null}
                             => pages completed, 2 items; pages[1] completed (output kept);
                                request ship #1 by 60s with {"next":null}
agent completes ship #1      => Processed; ship completed (output kept); no longer due

# A round that fails undoes the rounds before it, the last one first.
submit with {"next":1}
                             => Pending; due 20s
wake                         => Processing; pages running, 1 items; request pages[0] #1 by 20s with 1
agent completes pages[0] #1 with {"next":2}
                             => pages[0] completed (output kept); request pages[1] #1 by 20s with 2
agent completes pages[1] #1 with {"next":3}
                             => pages[1] completed (output kept); request pages[2] #1 by 20s with 3
agent fails pages[2] #1 "no page"
                             => Undoing because "step pages[2]: no page";
                                pages[2] failed (failures 1, reason kept);
                                request undo of pages[1] #1 by 60s with 2
agent completes undo of pages[1] #1
                             => pages[1] undone (output kept); request undo of pages[0] #1 by 60s with 1
agent completes undo of pages[0] #1
                             => Undone; pages[0] undone (output kept); no longer due

# One round more than there may be fails the step.
submit with {"next":1}
                             => Pending; due 20s
wake                         => Processing; pages running, 1 items; request pages[0] #1 by 20s with 1
agent completes pages[0] #1 with {"next":2}
                             => pages[0] completed (output kept); request pages[1] #1 by 20s with 2
agent completes pages[1] #1 with {"next":3}
                             => pages[1] completed (output kept); request pages[2] #1 by 20s with 3
agent completes pages[2] #1 with {"next":4}
                             => Undoing because
                                "step pages[3]: `repeat.until` is not true after 3 rounds";
                                pages[2] completed (output kept); pages[3] failed (failures 1, reason kept); wake scheduler
