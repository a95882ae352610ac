# A step with an empty list returns an empty list, and the next step starts in the same save.
workflow within 10m
  pick: for each ${ input.items } 2 at once
  ship: after pick, body ${ steps.pick.output }

submit with {"items":[]}     => Pending; due 30s
wake                         => Processing; pick completed, 0 items; request ship #1 by 60s with []
agent completes ship #1      => Processed; ship completed (output kept); no longer due
