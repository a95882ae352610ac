# A task in Error stays due until its alert is recorded as sent. If a process crashes before it sends
# the alert, the supervisor sends it.
timing   clock skew 2s, pickup within 30s
workflow within 10m
  charge: within 60s

submit reply_to shop         => Pending; due 30s
wake                         => Processing; request charge #1 by 60s
clock +10s
agent fails charge #1 "card declined"
                             => Error; charge failed (failures 1, reason kept); due 40s;
                                notification to shop: error "step charge: card declined";
                                alert charge "step charge: card declined"
clock +31s
sweep                        => ignored: NotDue
clock +1s
sweep                        => due 72s;
                                notification to shop: error "step charge: card declined";
                                alert charge "step charge: card declined"

# That alert is lost too.
clock +32s
sweep                        => due 104s;
                                notification to shop: error "step charge: card declined";
                                alert charge "step charge: card declined"
alert sent                   => no longer due
alert sent                   => ignored: NotDue
clock +60s
sweep                        => ignored: NotDue
