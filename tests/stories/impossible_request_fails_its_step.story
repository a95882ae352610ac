# A request that cannot be created is a permanent failure of its step, because a retry would not help.
workflow
  reserve: within 60s, attempts 3, body ${ input.item }
  charge:  after reserve, within 60s, attempts 3, path ${ steps.reserve.output.path }

# The input lacks a value that the first request needs.
submit with {}               => Pending; due 30s
clock +1s
wake                         => Error; reserve failed (failures 1, reason kept); due 31s;
                                alert reserve
                                "step reserve: expression `input.item`: there is no `item`"

# The output of the previous step lacks it. That step stays completed.
submit with {"item":"tea"}   => Pending; due 31s
wake                         => Processing; request reserve #1 by 61s with "tea"
clock +1s
agent completes reserve #1 with {}
                             => Error; reserve completed (output kept);
                                charge failed (failures 1, reason kept); due 32s; alert charge
                                "step charge: expression `steps.reserve.output.path`:
                                there is no `path`"

# A path must start with `/`.
submit with {"item":"tea"}   => Pending; due 32s
wake                         => Processing; request reserve #1 by 62s with "tea"
clock +1s
agent completes reserve #1 with {"path":"charges/7"}
                             => Error; reserve completed (output kept);
                                charge failed (failures 1, reason kept); due 33s; alert charge
                                "step charge: the request's path must start with `/`"

# A path must be a string.
submit with {"item":"tea"}   => Pending; due 33s
wake                         => Processing; request reserve #1 by 63s with "tea"
clock +1s
agent completes reserve #1 with {"path":7}
                             => Error; reserve completed (output kept);
                                charge failed (failures 1, reason kept); due 34s; alert charge
                                "step charge: the request's path is not a text"
