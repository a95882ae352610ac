# A value that is not a list, and an expression without a value, are permanent failures.
workflow within 10m
  pick: for each ${ input.items } 2 at once

submit with {"items":"tea"}  => Pending; due 30s
wake                         => Error; pick failed (failures 1, reason kept); alert pick "step pick:
                                `for_each.items` evaluates to a string, not to a list"
ann resubmits pick with input {"items":[1]} because "a typo"
                             => Processing; pick running, 1 items; input {"items":[1]} kept; due 60s;
                                request pick[0] #1 by 60s under key o-1/pick[0]/do/c-1;
                                published: resubmit pick with edited input
agent completes pick[0] #1   => Processed; pick completed, 1 items; pick[0] completed (output kept);
                                no longer due

submit with {}               => Pending; due 30s
wake                         => Error; pick failed (failures 1, reason kept);
                                alert pick "step pick: expression `input.items`: there is no `items`"
