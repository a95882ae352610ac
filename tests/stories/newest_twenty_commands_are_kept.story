# A task records its newest twenty commands. The older ones were published as events.
workflow within 10m
  reserve: within 60s

submit                       => Pending; due 30s
ann pauses                   => paused; due 3600s; published: pause
ann resumes                  => Processing; no longer paused; due 60s; request reserve #1 by 60s;
                                published: resume
ann cancels                  => Error; due 30s; alert "cancelled by ann: a test"; published: cancel
ann pauses                   => refused: the task is Error
ann pauses                   => refused: the task is Error
ann pauses                   => refused: the task is Error
ann pauses                   => refused: the task is Error
ann pauses                   => refused: the task is Error
ann pauses                   => refused: the task is Error
ann pauses                   => refused: the task is Error
ann pauses                   => refused: the task is Error
ann pauses                   => refused: the task is Error
ann pauses                   => refused: the task is Error
ann pauses                   => refused: the task is Error
ann pauses                   => refused: the task is Error
ann pauses                   => refused: the task is Error
ann pauses                   => refused: the task is Error
ann pauses                   => refused: the task is Error
ann pauses                   => refused: the task is Error
ann pauses                   => refused: the task is Error
ann pauses                   => refused: the task is Error
ann pauses                   => refused: the task is Error
ann pauses                   => refused: the task is Error
repeat command             => ignored: DuplicateCommand
