# An operator answers the callback of the second attempt. The call of the first one, which was refused, has the same idempotency key, so its
# late reply is no other effect.
workflow within 2h
  ask: callback within 1h, attempts 2, then alert, body ${ callback.token }, undo (path /u)

submit => Pending; due 30s
wake => Processing; request ask #1 by 60s with "o-1/ask/i000000000"
agent fails ask #1 "422" => Error; ask failed (failures 1, reason kept); alert ask "step ask: 422"
ann resubmits => Processing; ask running (failures 0); due 60s; request ask #2 by 60s with "o-1/ask/i000000000"; published: resubmit ask
agent completes ask #2 => ask awaiting callback until 3600s
ann approves ask with 1 => Processed; ask completed (output kept); no longer due; published: approve ask
agent completes ask #1 => ignored: DuplicateReply
