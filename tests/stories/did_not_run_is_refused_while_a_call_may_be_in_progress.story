# An operator cannot know that a step did not run while a call of it may be in progress.
workflow within 10m
  reserve: within 20s, attempts 1, undo
  charge:  after reserve, then undo

submit                       => Pending; due 20s
wake                         => Processing; request reserve #1 by 20s
clock +1s
agent cuts reserve #1 "the call took longer than 1s"
                             => Error; reserve failed (failures 1, may have run, call may be in progress until
                                42s, reason kept); due 31s; alert reserve "step reserve: the call
                                took longer than 1s, attempt 1"
ann skips reserve, it did not run because "their ledger has no reservation"
                             => refused: a call of step reserve may be in progress until
                                1970-01-01T00:00:42Z: state that it did not run after that time
ann resubmits reserve, it did not run because "their ledger has no reservation"
                             => refused: a call of step reserve may be in progress until
                                1970-01-01T00:00:42Z: state that it did not run after that time
clock +41s
ann skips reserve, it did not run because "their ledger has no reservation"
                             => Processing; task by 642s; reserve skipped (did not run); due 102s;
                                request charge #1 by 102s; published: skip reserve
# A reply was delayed: the step did run.
agent completes reserve #1 => Error; reserve skipped (may have run); due 72s; alert "step reserve took effect, and it was skipped"
agent fails charge #1 "no"   => Undoing because "step charge: no"; charge failed (failures 1, reason kept);
                                request undo of reserve #1 by 102s; alert "step reserve took effect, and it was
                                skipped"

# The task is Processed by then.
submit                       => Pending; due 62s
wake                         => Processing; request reserve #1 by 62s
agent fails reserve #1 "no stock"
                             => Error; reserve failed (failures 1, reason kept); due 72s; alert
                                reserve "step reserve: no stock"
ann skips reserve            => Processing; reserve skipped; due 102s; request charge #1 by 102s;
                                published: skip reserve
agent completes charge #1    => Processed; charge completed (output kept); no longer due
agent completes reserve #1 => Error; reserve skipped (may have run); due 72s; alert "step reserve took effect, and it was skipped"
ann undoes                   => Undoing because "requested by ann: a test"; due 102s; request undo of
                                reserve #1 by 102s; published: undo
