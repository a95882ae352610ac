# A call was refused, and its input edited. The token of the refused call is answered, so the call was made: the undo does not revert it.
workflow within 2h
  ask: callback within 1h, then alert, body ${ callback.token }, undo (path /u)

submit with {"n":1} => Pending; due 30s
wake => Processing; request ask #1 by 60s with "o-1/ask/i000000000"
agent fails ask #1 "422" => Error; ask failed (failures 1, reason kept); alert ask "step ask: 422"
ann resubmits ask with input {"n":2} => Processing; ask running (failures 0); input {"n":2} kept; due 60s; request ask #2 by 60s with "o-1/ask/i000000000/c-1" under key o-1/ask/do/c-1; published: resubmit ask with edited input
agent fails ask #2 "422" => Error; ask failed (failures 1, reason kept); due 30s; alert ask "step ask: 422"
ann undoes                   => Undone because "requested by ann: a test"; published: undo
callback completes ask with 1 => Undoing; task by 7262s; the undo is final; ask failed (call may be in progress until 62s); document step/ask/1/output; due 92s; wake scheduler in 62s
callback completes ask with 1 => ignored: StaleReply
