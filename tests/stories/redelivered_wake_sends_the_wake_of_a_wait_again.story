# The scheduler starts a wait and crashes before it sends the wake. The queue delivers its message again.
workflow within 1h
  pause: wait 30s
  charge: after pause

submit => Pending; due 30s
wake => Processing; pause waiting until 30s; wake scheduler in 30s
wake (redelivered) => ignored: NothingReady; again wake scheduler in 30s
