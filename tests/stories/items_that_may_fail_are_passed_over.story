# The list goes on without an item that failed, whose output is null.
workflow within 10m
  mail: for each ${ input.items } 1 at once, attempts 1, body ${ item }, then continue
  call: after mail, when ${ steps.mail.failed }, body ${ steps.mail.output }

submit with {"items":["a","b"]}
                             => Pending; due 30s
wake                         => Processing; mail running, 2 items; request mail[0] #1 by 60s with "a"
agent fails mail[0] #1 "no such mailbox"
                             => mail[0] skipped (failures 1, reason kept); request mail[1] #1 by 60s with "b"
agent completes mail[1] #1 with 7
                             => mail completed, 2 items; mail[1] completed (output kept);
                                request call #1 by 60s with [null,7]
agent completes call #1      => Processed; call completed (output kept); no longer due
