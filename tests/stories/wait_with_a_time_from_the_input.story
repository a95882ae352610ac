# A time, a duration, a time in the past, and an invalid value.
workflow within 2h
  cool: wait ${ input.until }

submit with {"until":"1970-01-01T00:30:00Z"}
                             => Pending; due 30s
wake                         => Processing; cool waiting until 1800s
clock +1830s
sweep                        => due 1860s; wake scheduler
wake                         => Processed; cool completed; no longer due
submit with {"until":"0s"}   => Pending; due 1860s
wake                         => Processed; cool completed; no longer due
submit with {"until":"1970-01-01T00:00:00Z"}
                             => Pending; due 1860s
wake                         => Processed; cool completed; no longer due
submit with {"until":"soon"} => Pending; due 1860s
wake                         => Error; cool failed (failures 1, reason kept); alert cool "step cool:
                                must be a duration such as `15m`, or a time such as
                                `2026-12-24T18:00:00Z`"
submit with {"until":7}      => Pending; due 1860s
wake                         => Error; cool failed (failures 1, reason kept); alert cool "step cool:
                                must be a string: a duration such as `15m`, or a time"
submit with {"until":"31d"}  => Pending; due 1860s
wake                         => Error; cool failed (failures 1, reason kept);
                                alert cool "step cool: a wait of more than 30d"
