# An edit of the input may replace items that it resubmits and that have not run. An edit that moves a completed item to
# another position is refused, because the item would run twice.
timing   clock skew 2s, pickup within 30s
workflow within 10m
  pack: for each ${ input.items } 2 at once, within 20s, body ${ item }

submit with {"items":["a","b","c"]}
                             => Pending; due 20s
wake                         => Processing; pack running, 3 items; request pack[0] #1 by 20s with
                                "a"; request pack[1] #1 by 20s with "b"
agent fails pack[1] #1 "out of stock" => Error; pack[1] failed (failures 1, reason kept); alert pack[1] "step pack[1]: out of stock"
ann resubmits with input {"items":["b2","a","c"]}
                             => refused: step pack: item pack[0] is running, but the edited input
                                changes it: an edit can only replace items that it resubmits and that have not run, at the
                                same index
agent completes pack[0] #1   => pack[0] completed (output kept); no longer due
ann resubmits with input {"items":["b2","a","c"]}
                             => refused: step pack: item pack[0] is completed, but the edited input
                                changes it: an edit can only replace items that it resubmits and that have not run, at the
                                same index
ann resubmits with input {"items":["a","b2"]}
                             => refused: step pack started with 3 items, but the edited input has 2:
                                an edit can only replace items that it resubmits and that have not run, at the same index
ann resubmits with input {"items":"none"}
                             => refused: step pack: `for_each.items` evaluates to a string, not to a
                                list
ann resubmits with input {"items":["a","b2","c2"]}
                             => Processing; pack[1] running (failures 0); input {"items":["a","b2","c2"]} kept;
                                due 20s; request pack[1] #2 by 20s with "b2" under key o-1/pack[1]/do/c-5;
                                request pack[2] #1 by 20s with "c2" under key o-1/pack[2]/do/c-5; published:
                                resubmit pack[1] with edited input
agent completes pack[1] #2   => pack[1] completed (output kept)
agent completes pack[2] #1   => Processed; pack completed, 3 items; pack[2] completed (output kept);
                                no longer due
