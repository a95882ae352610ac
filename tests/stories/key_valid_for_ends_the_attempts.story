# The service keeps an idempotency key for a time. What may have run is not repeated after it, and no attempt is awaited longer.
workflow within 1h
  reserve: undo
  charge:  after reserve, within 20s, attempts 9, backoff from 10s rate 1, key valid for 60s, then undo

submit                       => Pending; due 20s
wake                         => Processing; request reserve #1 by 60s
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 20s
clock +10s
agent cuts charge #1 "too slow"
                             => charge waiting until 20s (failures 1, may have run, call may be in progress
                                until 42s, reason kept); wake scheduler in 10s
clock +10s
wake                         => request charge #2 by 40s
clock +10s
# The next attempt has less time than the others, and is the last one.
agent cuts charge #2 "too slow"
                             => charge waiting until 40s (failures 2, call may be in progress until 62s, reason
                                kept); wake scheduler in 10s
clock +15s
wake                         => request charge #3 by 60s
clock +10s
agent cuts charge #3 "too slow"
                             => Undoing because "step charge: no retry within `key_valid_for`: too slow, attempt
                                3"; task by 3682s; charge failed (failures 3, call may be in progress until 82s,
                                reason kept); wake scheduler in 27s

# Another delivery of a deferred request may have run it, so the step does not wait for longer than the key is kept.
submit                       => Pending; due 75s
wake                         => Processing; request reserve #1 by 115s
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 75s
clock +10s
agent defers charge #1 for 55s "breaker open"
                             => Undoing because "step charge: has to wait 55s, past `key_valid_for`: breaker
                                open"; task by 3697s; charge failed (failures 1, may have run, call may be in
                                progress until 97s, reason kept); wake scheduler in 32s
