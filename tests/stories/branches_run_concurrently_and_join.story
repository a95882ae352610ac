# Branches run concurrently. The step after both starts when the last of them completes.
workflow
  check:   within 30s
  reserve: after check, within 30s
  invoice: after check, within 60s
  ship:    after reserve and invoice, within 30s,
           body ["${ input.to }", "${ steps.check.output.by }", "${ steps.reserve.output.id }",
                 "${ steps.invoice.output.id }"]

submit with {"to":"Oslo"}    => Pending; due 30s
wake                         => Processing; request check #1 by 30s
clock +5s
agent completes check #1 with {"by":"Ida"}
                             => check completed (output kept); request reserve #1 by 35s;
                                request invoice #1 by 65s
clock +5s
agent completes invoice #1 with {"id":"i-1"}
                             => invoice completed (output kept)
clock +5s
agent completes reserve #1 with {"id":"r-1"}
                             => reserve completed (output kept);
                                request ship #1 by 45s with ["Oslo","Ida","r-1","i-1"]
clock +5s
agent completes ship #1      => Processed; ship completed (output kept); no longer due
