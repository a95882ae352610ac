# An operator answers the callback of a step by name, without its token. The record of the task says who answered.
workflow within 2h
  check:   within 60s, undo
  approve: after check, callback within 1h as {"type":"integer"}, body ${ callback.token }, then undo
  ship:    after approve

submit                       => Pending; due 30s
wake                         => Processing; request check #1 by 60s
ann approves                 => refused: no step awaits a callback
ann rejects check            => refused: step check is running: it awaits no callback
agent completes check #1     => check completed (output kept); request approve #1 by 60s with "o-1/approve/i000000000"
ann approves                 => refused: no step awaits a callback
agent completes approve #1   => approve awaiting callback until 3600s
ann approves approve with {} => refused: answer: it is not of type "integer"
callback completes approve with {}
                             => ignored: InvalidAnswer
ann approves with 5
                             => approve completed (output kept); due 60s;
                                request ship #1 by 60s; published: approve approve
ann rejects approve          => refused: step approve is completed: it awaits no callback
