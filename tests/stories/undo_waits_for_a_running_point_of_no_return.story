# Another branch fails while an agent works on the point of no return. Nothing is undone until it is
# known whether the task can still be undone.
workflow within 10m
  reserve: undo
  ship:    after reserve, within 60s, point of no return
  invoice: after reserve, within 60s, attempts 1, then undo

# The point of no return completes, so the task cannot be undone.
submit                       => Pending; due 30s
wake                         => Processing; request reserve #1 by 60s
agent completes reserve #1   => reserve completed (output kept); request ship #1 by 60s;
                                request invoice #1 by 60s
agent fails invoice #1 "no address"
                             => Undoing because "step invoice: no address";
                                invoice failed (failures 1, reason kept)
wake                         => ignored: NothingReady
ann completes reserve        => refused: the undo of step reserve cannot begin: the point of no return runs
                                or has run
ann skips reserve            => refused: the undo of step reserve cannot begin: the point of no return runs
                                or has run
clock +1s
agent completes ship #1      => Error; ship completed (output kept); due 31s;
                                alert invoice "not undone, past the point of no return ship: step
                                invoice: no address"

# The point of no return fails, so the task is undone.
submit                       => Pending; due 31s
wake                         => Processing; request reserve #1 by 61s
agent completes reserve #1   => reserve completed (output kept); request ship #1 by 61s;
                                request invoice #1 by 61s
agent fails invoice #1 "no address"
                             => Undoing because "step invoice: no address";
                                invoice failed (failures 1, reason kept)
agent fails ship #1 "no lorry"
                             => ship failed (failures 1, reason kept);
                                request undo of reserve #1 by 61s
agent completes undo of reserve #1
                             => Undone; reserve undone (output kept); no longer due

# The point of no return fails and may have run.
submit                       => Pending; due 31s
wake                         => Processing; request reserve #1 by 61s
agent completes reserve #1   => reserve completed (output kept); request ship #1 by 61s;
                                request invoice #1 by 61s
agent fails invoice #1 "no address"
                             => Undoing because "step invoice: no address";
                                invoice failed (failures 1, reason kept)
agent fails ship #1 "no lorry", may have run
                             => Error; task by 723s; ship failed (failures 1, may have run, call may
                                be in progress until 123s, reason kept); alert invoice, ship "not undone, past
                                the point of no return ship: step invoice: no address"

# The point of no return is silent.
submit                       => Pending; due 31s
wake                         => Processing; request reserve #1 by 61s
agent completes reserve #1   => reserve completed (output kept); request ship #1 by 61s;
                                request invoice #1 by 61s
agent fails invoice #1 "no address"
                             => Undoing because "step invoice: no address";
                                invoice failed (failures 1, reason kept)
clock +62s
sweep                        => task by 723s; ship failed (failures 1, may have run, call may be in progress
                                until 123s, reason kept); unlocked; due 93s; wake scheduler; wake
                                scheduler in 60s
wake                         => Error;
                                alert invoice, ship "not undone, past the point of no return ship:
                                step invoice: no address"

# The point of no return completes while the task is paused. The operator who resumes the task sees
# it.
submit                       => Pending; due 93s
wake                         => Processing; request reserve #1 by 123s
agent completes reserve #1   => reserve completed (output kept); request ship #1 by 123s;
                                request invoice #1 by 123s
agent fails invoice #1 "no address"
                             => Undoing because "step invoice: no address";
                                invoice failed (failures 1, reason kept)
ann pauses                   => paused; due 123s; published: pause
agent completes ship #1      => ship completed (output kept)
ann skips reserve            => refused: the undo of step reserve cannot begin: the point of no return runs
                                or has run
ann resumes                  => Error; no longer paused; due 93s;
                                alert invoice "not undone, past the point of no return ship: step
                                invoice: no address"; published: resume
