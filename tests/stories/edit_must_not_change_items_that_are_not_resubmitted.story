# An operator who resubmits one item cannot replace another, which would go on with its old value.
timing   clock skew 2s, pickup within 30s
workflow within 10m
  pack: for each ${ input.items } 2 at once, within 20s, body ${ item }

submit with {"items":["a","b"]}
                             => Pending; due 20s
wake                         => Processing; pack running, 2 items; request pack[0] #1 by 20s with
                                "a"; request pack[1] #1 by 20s with "b"
agent fails pack[0] #1 "out of stock" => Error; pack[0] failed (failures 1, reason kept); alert pack[0] "step pack[0]: out of stock"
agent fails pack[1] #1 "out of stock"
                             => pack[1] failed (failures 1, reason kept)
ann resubmits pack[0] with input {"items":["a2","b2"]}
                             => refused: step pack: item pack[1] is failed, but the edited input
                                changes it: an edit can only replace items that it resubmits and that have not run, at the
                                same index
ann resubmits with input {"items":["a2","b2"]}
                             => Processing; pack[0] running (failures 0); pack[1] running (failures 0); input
                                {"items":["a2","b2"]} kept; due 20s; request pack[0] #2 by 20s with "a2" under
                                key o-1/pack[0]/do/c-2; request pack[1] #2 by 20s with "b2" under key
                                o-1/pack[1]/do/c-2; published: resubmit pack[0], pack[1] with edited input
