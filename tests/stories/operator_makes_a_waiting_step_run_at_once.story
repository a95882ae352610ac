# An operator can start a waiting step at once.
workflow within 1h
  charge:  within 20s, attempts 2, backoff from 60s
  invoice: within 60s

submit                       => Pending; due 20s
wake                         => Processing; request charge #1 by 20s; request invoice #1 by 60s
clock +22s
sweep                        => charge waiting until 82s (failures 1, may have run, call may be in progress
                                until 42s, reason kept); unlocked; due 60s; wake scheduler in 60s
ann resubmits invoice        => refused: step invoice is running: only a failed or waiting step can
                                be resubmitted
ann resubmits refund         => refused: the workflow has no step refund
ann resubmits                => charge running (failures 0); due 42s; request charge #2 by 42s;
                                published: resubmit charge
wake                         => ignored: NothingReady
ann resubmits                => refused: no step failed or is waiting
agent completes charge #2    => charge completed (output kept)
agent completes invoice #1   => Processed; invoice completed (output kept); no longer due
