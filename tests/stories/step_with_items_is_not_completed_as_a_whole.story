# A step that has not started can be skipped, but it cannot be completed as a whole if it has items.
workflow within 10m
  a:    path /a
  pick: after a, for each ${ input.items } 3 at once

submit with {"items":["tea"]}
                             => Pending; due 30s
wake                         => Processing; request a #1 by 60s
ann completes pick with [] because "all done"
                             => refused: step pick has items or rounds: complete them, such as pick[0]
ann completes pick[0] with 1 because "not begun"
                             => refused: item pick[0] has not started
ann skips pick because "not wanted"
                             => pick skipped; due 60s; published: skip pick
agent completes a #1         => Processed; a completed (output kept); no longer due
