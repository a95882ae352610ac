# A `when` that is neither true nor false, or has no value, is a permanent failure of its step.
workflow within 10m
  a: undo
  b: after a, when ${ steps.a.output.ok }, then undo
  c: after a, when ${ steps.a.output.missing }

submit                       => Pending; due 30s
wake                         => Processing; request a #1 by 60s
agent completes a #1 with {"ok":"yes"}
                             => Undoing because "step b: `when` evaluates to a string, not to a
                                boolean"; a completed (output kept); b failed (failures 1, reason
                                kept); c failed (failures 1, reason kept); wake scheduler
wake                         => request undo of a #1 by 60s
agent completes undo of a #1 => Undone; a undone (output kept); no longer due
