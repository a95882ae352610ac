# The size of a step's output is limited. A larger output is a permanent failure and is not stored.
workflow
  reserve: within 60s, attempts 3

submit                       => Pending; due 30s
wake                         => Processing; request reserve #1 by 60s
clock +1s
agent completes reserve #1 with 131073 bytes
                             => Error; reserve failed (failures 1, may have run, reason kept);
                                due 31s; alert reserve "step reserve: an output of 131073 bytes;
                                the limit is 131072"

submit                       => Pending; due 31s
wake                         => Processing; request reserve #1 by 61s
clock +1s
agent completes reserve #1 with 33 levels
                             => Error; reserve failed (failures 1, may have run, reason kept);
                                due 32s;
                                alert reserve "step reserve: the output nests deeper than 32 levels"

# An output of exactly the limit is accepted.
submit                       => Pending; due 32s
wake                         => Processing; request reserve #1 by 62s
agent completes reserve #1 with 131072 bytes
                             => Processed; reserve completed (output kept); no longer due

submit                       => Pending; due 32s
wake                         => Processing; request reserve #1 by 62s
agent completes reserve #1 with 32 levels
                             => Processed; reserve completed (output kept); no longer due
