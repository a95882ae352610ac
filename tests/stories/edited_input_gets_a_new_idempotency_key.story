# The operator may edit the input of a resubmitted step with a merge patch. The changed request has a
# new idempotency key. Later steps read the edited input too.
workflow within 10m
  reserve: body ${ input.item }
  charge:  after reserve, within 20s, attempts 2, body ${ input.card }, then alert, undo (body ${ input.card })
  ship:    after charge, body ${ input.item }

submit with {"card":"old","item":"tea"}
                             => Pending; due 20s
wake                         => Processing; request reserve #1 by 60s with "tea"
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 20s with "old"
agent fails charge #1 "card declined"
                             => Error; charge failed (failures 1, reason kept); due 30s;
                                alert charge "step charge: card declined"
ann resubmits charge with input {"card":"new"} because "the customer has a new card"
                             => Processing; charge running (failures 0);
                                input {"card":"new","item":"tea"} kept; due 20s;
                                request charge #2 by 20s with "new" under key o-1/charge/do/c-1;
                                published: resubmit charge with edited input
agent fails charge #2 "card declined"
                             => Error; charge failed (failures 1, reason kept); due 30s;
                                alert charge "step charge: card declined"
clock +1s
ann resubmits with input {"card":"newest"}
                             => Processing; task by 601s; charge running (failures 0);
                                input {"card":"newest","item":"tea"} kept; due 21s;
                                request charge #3 by 21s with "newest" under key o-1/charge/do/c-2;
                                published: resubmit charge with edited input
clock +22s
sweep                        => charge waiting (failures 1, may have run, call may be in progress until 43s,
                                reason kept); unlocked; due 53s; wake scheduler
wake                         => due 43s;
                                request charge #4 by 43s with "newest" under key o-1/charge/do/c-2
agent completes charge #4    => charge completed (output kept);
                                request ship #1 by 83s with "tea" under key o-1/ship/do/c-2
agent fails ship #1 "no lorry"
                             => Error; ship failed (failures 1, reason kept); due 53s;
                                alert ship "step ship: no lorry"
ann undoes                   => Undoing because "requested by ann: a test"; task by 643s; due 73s;
                                published: undo; wake scheduler in 20s
clock +20s
wake                         => request undo of charge #1 by 103s with "newest" under key
                                o-1/charge/undo/c-2
agent completes undo of charge #1
                             => Undone; charge undone (output kept); no longer due
