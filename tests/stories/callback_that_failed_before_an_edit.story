# A callback says that the step failed, and the input is edited. The same answer once more is no news, and no effect.
workflow within 2h
  ask: callback within 1h, then alert, body ${ callback.token }, undo (path /u)

submit with {"n":1} => Pending; due 30s
wake => Processing; request ask #1 by 60s with "o-1/ask/i000000000"
agent completes ask #1 => ask awaiting callback until 3600s
callback fails ask "no"      => Error; ask failed (failures 1, may have run, reason kept); alert ask "step ask:
                                the callback reported a failure"
ann resubmits ask with input {"n":2}, it did not run => Processing; ask running (failures 0, did not run); input {"n":2} kept; due 60s; request ask #2 by 60s with "o-1/ask/i000000000/c-1" under key o-1/ask/do/c-1; published: resubmit ask with edited input
callback fails ask "no" => ignored: StaleReply
