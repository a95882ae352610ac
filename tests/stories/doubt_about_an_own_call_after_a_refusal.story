# A request is delivered twice. One delivery is refused, and the step fails. The other made a call without an answer before it was
# refused too. Its doubt is about its own call, so it counts; a doubt about another delivery does not.
workflow within 10m
  reserve: within 10s, undo
  charge:  after reserve, within 10s, attempts 1, then undo, undo

# The task is Undone.
submit                       => Pending; due 10s
wake                         => Processing; request reserve #1 by 10s
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 10s
agent fails charge #1 "HTTP 402" => Undoing because "step charge: HTTP 402"; charge failed (failures 1, reason kept); request undo of reserve #1 by 60s
agent completes undo of reserve #1 => Undone; reserve undone (output kept); no longer due
agent fails charge #1 "HTTP 402", may have run
                             => ignored: DuplicateReply
agent fails charge #1 "HTTP 402", its own call may have run
                             => Undoing; task by 612s; the undo is final; charge failed (may have run, call may be in progress until 12s); due 42s; wake scheduler in 12s
agent fails charge #1 "HTTP 402", its own call may have run
                             => ignored: DuplicateReply

# It is deferred.
submit                       => Pending; due 10s
wake                         => Processing; request reserve #1 by 10s
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 10s
agent fails charge #1 "HTTP 402" => Undoing because "step charge: HTTP 402"; charge failed (failures 1, reason kept); request undo of reserve #1 by 60s
agent completes undo of reserve #1 => Undone; reserve undone (output kept); no longer due
agent defers charge #1 for 20s "HTTP 503", its own call may have run
                             => Undoing; task by 612s; the undo is final; charge failed (may have run, call may be in progress until 12s); due 42s; wake scheduler in 12s
