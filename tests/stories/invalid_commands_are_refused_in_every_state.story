# An invalid command is refused with a reason, which is recorded and published.
workflow within 10m
  reserve: within 60s, undo (attempts 1)
  charge:  after reserve, within 60s

# A Pending task.
submit                       => Pending; due 30s
ann resubmits reserve        => refused: the task has not started
ann skips reserve            => refused: the task has not started
ann completes reserve with {"id":"r-1"}
                             => refused: the task has not started
ann resumes                  => refused: the task is not paused
wake                         => Processing; request reserve #1 by 60s

# A task in Processing.
ann resubmits                => refused: no step failed or is waiting
ann skips                    => refused: no step failed: name a step
ann skips reserve            => refused: step reserve is running
ann skips refund             => refused: the workflow has no step refund
ann completes                => refused: no step failed: name a step
ann completes reserve        => refused: step reserve is running
ann resumes                  => refused: the task is not paused
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 60s
ann skips reserve            => refused: step reserve is completed
agent completes charge #1    => Processed; charge completed (output kept); no longer due

# A task in Processed.
ann resubmits                => refused: the task is Processed
ann skips charge             => refused: the task is Processed
ann completes charge         => refused: the task is Processed
ann cancels                  => refused: the task is Processed
ann pauses                   => refused: the task is Processed
ann resumes                  => refused: the task is not paused

# A task in Undoing.
ann undoes because "the customer called"
                             => Undoing because "requested by ann: the customer called"; due 60s;
                                request undo of reserve #1 by 60s; published: undo
ann undoes                   => refused: the task is being undone
ann resubmits                => refused: no step failed or is waiting
ann skips                    => refused: no step failed: name a step
ann skips reserve            => refused: step reserve is running
ann completes charge         => refused: step charge has nothing to undo
ann resumes                  => refused: the task is not paused
agent completes undo of reserve #1
                             => Undone; reserve undone (output kept); no longer due

# A task in Undone.
ann resubmits                => refused: the task is Undone
ann skips reserve            => refused: the task is Undone
ann completes reserve        => refused: the task is Undone
ann undoes                   => refused: the task is Undone
ann cancels                  => refused: the task is Undone
ann pauses                   => refused: the task is Undone
ann resumes                  => refused: the task is not paused

# A task in Error.
submit                       => Pending; due 30s
wake                         => Processing; request reserve #1 by 60s
clock +1s
agent fails reserve #1 "no stock"
                             => Error; reserve failed (failures 1, reason kept); due 31s;
                                alert reserve "step reserve: no stock"
ann resubmits charge         => refused: step charge is not started: only a failed or waiting step can
                                be resubmitted
ann cancels                  => refused: the task is Error
ann pauses                   => refused: the task is Error
ann resumes                  => refused: the task is not paused
