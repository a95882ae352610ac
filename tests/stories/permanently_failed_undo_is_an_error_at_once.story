# An undo that failed permanently is not retried. Replies to other undos are still recorded, and
# nothing new starts.
workflow within 10m
  check:   undo
  reserve: after check, undo (attempts 3)
  invoice: after check, undo
  label:   after check, undo
  charge:  after reserve and invoice and label, then undo

submit reply_to shop         => Pending; due 30s
wake                         => Processing; request check #1 by 60s
agent completes check #1     => check completed (output kept); request reserve #1 by 60s;
                                request invoice #1 by 60s; request label #1 by 60s
agent completes reserve #1   => reserve completed (output kept)
agent completes invoice #1   => invoice completed (output kept)
agent completes label #1     => label completed (output kept); request charge #1 by 60s
agent fails charge #1 "card declined"
                             => Undoing because "step charge: card declined";
                                charge failed (failures 1, reason kept);
                                request undo of reserve #1 by 60s;
                                request undo of invoice #1 by 60s; request undo of label #1 by 60s
clock +1s
agent fails undo of reserve #1 "gone"
                             => Error; undo of reserve failed (failures 1, reason kept); due 31s;
                                notification to shop: error "undo of step reserve: gone";
                                alert: left to undo check, reserve, invoice, label "undo of step
                                reserve: gone"
agent completes undo of invoice #1
                             => invoice undone (output kept)
agent fails undo of label #1 "gone too"
                             => undo of label failed (failures 1, reason kept); notification to shop: error
                                "step label: gone too; undo of step reserve: gone"; alert: left to undo check,
                                reserve, label "step label: gone too; undo of step reserve: gone"
agent fails undo of label #1 "gone too"
                             => ignored: DuplicateReply
clock +32s
sweep                        => due 63s; notification to shop: error "step label: gone too; undo of step
                                reserve: gone"; alert: left to undo check, reserve, label "step label: gone too;
                                undo of step reserve: gone"
alert sent                   => no longer due
# A resubmit of one undo does not affect the other.
ann resubmits reserve => task by 633s; undo of reserve running (failures 0); due 93s; request undo of reserve #2 by 93s; published: resubmit reserve
ann resubmits label => Undoing; undo of label running (failures 0); request undo of label #2 by 93s; published: resubmit label
agent completes undo of label #2
                             => label undone (output kept)
agent completes undo of reserve #2
                             => reserve undone (output kept); request undo of check #1 by 93s
agent completes undo of check #1
                             => Undone; check undone (output kept); no longer due;
                                notification to shop: undone "step charge: card declined"
