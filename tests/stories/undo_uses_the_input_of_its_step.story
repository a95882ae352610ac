# The request of an undo uses the input of its step, not a later edit.
workflow within 10m
  reserve: path /items/${ input.item }, undo (path /items/${ input.item }/release)
  charge:  after reserve, body ${ input.card }, then alert

submit with {"card":"old","item":"tea"}
                             => Pending; due 30s
wake                         => Processing; request reserve #1 by 60s at /items/tea
agent completes reserve #1   => reserve completed (output kept); request charge #1 by 60s with "old"
agent fails charge #1 "card declined"
                             => Error; charge failed (failures 1, reason kept); alert charge "step
                                charge: card declined"
ann resubmits charge with input {"card":"new","item":"coffee"}
                             => Processing; charge running (failures 0); input
                                {"card":"new","item":"coffee"} kept; due 60s; request charge #2 by
                                60s with "new" under key o-1/charge/do/c-1; published: resubmit charge
                                with edited input
agent fails charge #2 "card declined"
                             => Error; charge failed (failures 1, reason kept); due 30s; alert
                                charge "step charge: card declined"
ann undoes                   => Undoing because "requested by ann: a test"; due 60s; request undo of
                                reserve #1 by 60s at /items/tea/release; published: undo
agent completes undo of reserve #1
                             => Undone; reserve undone (output kept); no longer due
