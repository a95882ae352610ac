# When a step is skipped, the next step is evaluated in the same decision, up to the end of the task.
workflow within 10m, output ${ steps.b.output }
  a: when ${ input.wanted }
  b: after a, when ${ input.wanted }
  c: after b, when ${ steps.b.output == null && input.wanted }

submit reply_to shop with {"wanted":false}
                             => Pending; due 30s
wake                         => Processed; a skipped; b skipped; c skipped; returns null; no longer due;
                                notification to shop: processed with null
wake (redelivered)           => ignored: Ended; again notification to shop: processed with null
