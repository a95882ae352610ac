# An alert is lost if its sender dies. If a command continues the task before the supervisor sends the alert again, the command
# sends it.
timing   clock skew 2s, pickup within 30s
workflow within 10m
  charge: within 60s

submit                       => Pending; due 30s
wake                         => Processing; request charge #1 by 60s
clock +10s
agent fails charge #1 "card declined"
                             => Error; charge failed (failures 1, reason kept); due 40s; alert charge "step
                                charge: card declined"
alert lost
ann resubmits                => Processing; task by 610s; charge running (failures 0); due 70s; request charge
                                #2 by 70s; alert charge "step charge: card declined"; published: resubmit charge

# The alert of a second failure is not lost, and is not repeated.
clock +10s
agent fails charge #2 "card declined"
                             => Error; charge failed (failures 1, reason kept); due 50s; alert charge "step
                                charge: card declined"
ann resubmits                => Processing; task by 620s; charge running (failures 0); due 80s; request charge
                                #3 by 80s; published: resubmit charge
