# The call of a step with a callback gets two replies. The second arrives after the attempt was given
# up, and does not make the step await the callback again.
workflow within 2h
  approve: callback within 1m, within 20s, attempts 2, path /ask/${ callback.token }

submit                       => Pending; due 20s
wake                         => Processing; request approve #1 by 20s at /ask/o-1%2Fapprove%2Fi000000000
agent completes approve #1   => approve awaiting callback until 60s
clock +62s
sweep                        => approve waiting (failures 1, may have run, reason kept); unlocked;
                                due 92s; wake scheduler
agent completes approve #1   => ignored: StaleReply
