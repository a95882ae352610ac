# An operator repeats a step days after its last attempt: the service may have forgotten the key. So the operator has to look at the
# service first, and states that the step did not run, or completes it.
workflow within 10m
  charge:  within 20s, attempts 1, key valid for 60s

submit                       => Pending; due 20s
wake                         => Processing; request charge #1 by 20s
clock +20s
agent cuts charge #1 "too slow"
                             => Error; charge failed (failures 1, may have run, call may be in progress until
                                42s, reason kept); due 50s; alert charge "step charge: too slow, attempt 1"
# In time.
clock +20s
ann resubmits                => Processing; task by 640s; charge running (failures 0); due 60s; request charge
                                #2 by 60s; published: resubmit charge
clock +10s
agent cuts charge #2 "too slow"
                             => Error; charge failed (failures 1, call may be in progress until 82s, reason
                                kept); due 80s; alert charge "step charge: too slow, attempt 2"
# The pause of a task does not keep the key.
clock +10m
ann resubmits                => refused: step charge may have run, and its service may have forgotten the key
                                since 1970-01-01T00:01:00Z: check there, then complete the step, or state that
                                it did not run
ann resubmits charge, it did not run
                             => Processing; task by 1250s; charge running (failures 0, did not run); input null
                                kept; due 670s; request charge #3 by 670s under key o-1/charge/do/c-3;
                                published: resubmit charge

# A refusal is certain: nothing ran with the key.
submit                       => Pending; due 670s
wake                         => Processing; request charge #1 by 670s
clock +10s
agent fails charge #1 "no"   => Error; charge failed (failures 1, reason kept); due 690s; alert charge "step
                                charge: no"
clock +10m
ann resubmits                => Processing; task by 1860s; charge running (failures 0); input null kept; due
                                1280s; request charge #2 by 1280s under key o-1/charge/do/c-4; published:
                                resubmit charge
