# A resumed task gets back the time of the pause, and no more.
workflow within 50s
  reserve: within 20s

submit                       => Pending; due 20s
clock +51s
ann pauses                   => paused; due 3651s; published: pause
clock +100s
ann resumes                  => task by 150s; no longer paused; due 150s; published: resume
clock +1s
sweep                        => Error; due 182s; alert "the task was not done by its complete-by"
