# A task is in Error while agents still work on other branches. Replies that arrive in time are
# recorded, and nothing new starts.
timing   clock skew 2s, pickup within 30s
workflow within 10m
  reserve: within 60s
  invoice: within 60s
  label:   within 60s
  wrap:    within 60s
  notify:  within 20s
  ship:    after reserve

submit                       => Pending; due 20s
wake                         => Processing; request reserve #1 by 60s; request invoice #1 by 60s;
                                request label #1 by 60s; request wrap #1 by 60s;
                                request notify #1 by 20s
clock +10s
agent fails invoice #1 "no address" => Error; invoice failed (failures 1, reason kept); alert invoice "step invoice: no address"
agent completes reserve #1   => reserve completed (output kept)
clock +11s
agent completes notify #1    => notify completed (output kept)
agent fails label #1 "no paper"
                             => label failed (failures 1, reason kept); due 51s; alert invoice, label "step
                                label: no paper; step invoice: no address"
agent completes label #1     => label completed (may have run, output kept)

# That alert was lost. The next alert names all failed steps, and the first reason. The label is none of them any more.
clock +21s
sweep                        => ignored: NotDue
alert sent                   => due 60s
agent completes wrap #1 => wrap completed (output kept); no longer due
wake => ignored: NothingReady
