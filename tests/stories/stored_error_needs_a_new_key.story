# A service stores its first answer under the idempotency key, and repeats it for ever. `resubmit --new-key` is an edit that
# changes nothing: the request has another key. A refusal is certain, so the operator need not say more.
workflow within 10m
  charge:  within 20s, attempts 1, body ${ input.card }, then alert

submit with {"card":"old"}
                             => Pending; due 20s
wake                         => Processing; request charge #1 by 20s with "old"
agent fails charge #1 "HTTP 402"
                             => Error; charge failed (failures 1, reason kept); due 30s; alert charge "step charge: HTTP 402"
ann resubmits charge with input {}
                             => Processing; charge running (failures 0);
                                input {"card":"old"} kept; due 20s;
                                request charge #2 by 20s with "old" under key o-1/charge/do/c-1;
                                published: resubmit charge with a new key
agent completes charge #2    => Processed; charge completed (output kept); no longer due

# If the call may have run, the service cannot recognise it under the new key: the operator must know that it did not.
submit with {"card":"old"}
                             => Pending; due 20s
wake                         => Processing; request charge #1 by 20s with "old"
agent fails charge #1 "HTTP 500", may have run
                             => Error; charge failed (failures 1, may have run, call may be in progress until
                                42s, reason kept); due 30s; alert charge "step charge: HTTP 500"
ann resubmits charge with input {}
                             => refused: an attempt at step charge may have taken effect: check the
                                service, then complete the step, or resubmit it with the statement
                                that it did not run
clock +43s
ann resubmits charge with input {}, it did not run
                             => Processing; task by 643s; charge running (failures 0, did not run);
                                input {"card":"old"} kept; due 63s; request charge #2 by 63s with
                                "old" under key o-1/charge/do/c-3; published: resubmit charge with a new key
agent completes charge #2    => Processed; charge completed (output kept); no longer due
