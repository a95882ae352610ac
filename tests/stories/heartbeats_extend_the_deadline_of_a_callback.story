# Without a heartbeat in time, the attempt counts as silent. Heartbeats extend the deadline, but not
# beyond the callback's limit.
workflow within 2h
  render: callback within 10m heartbeat every 4m, path /render, body ${ callback.token }, attempts 1, then undo,
          undo

submit                       => Pending; due 30s
wake                         => Processing; request render #1 by 60s with "o-1/render/i000000000"
callback heartbeat for render
                             => ignored: StillAwaited
agent completes render #1    => render awaiting callback until 240s
clock +200s
callback heartbeat for render
                             => render awaiting callback until 440s
clock +239s
callback heartbeat for render
                             => render awaiting callback until 600s
clock +100s
callback heartbeat for render
                             => ignored: StillAwaited
clock +63s
callback heartbeat for render
                             => ignored: StillAwaited
sweep                        => Undoing because "step render: no reply by complete-by, attempt 1";
                                task by 7802s; render failed (failures 1, may have run, reason kept);
                                unlocked; due 632s; wake scheduler
callback heartbeat for render
                             => ignored: DuplicateReply
wake                         => request undo of render #1 by 662s
agent completes undo of render #1
                             => Undone; render undone (output kept); no longer due
