# A reply that arrives twice is ignored. If it is redelivered, its effects may have been lost when the
# scheduler crashed after the save, so they are sent again at once.
workflow
  reserve: within 60s
  charge:  after reserve, within 60s, body ${ steps.reserve.output.id }
  invoice: after reserve, within 60s, body ${ input.address }

submit reply_to shop with {"address":"Oslo"}
                             => Pending; due 30s
wake                         => Processing; request reserve #1 by 60s
clock +1s
agent completes reserve #1 with {"id":"r-1"}
                             => reserve completed (output kept); request charge #1 by 61s with
                                "r-1";
                                request invoice #1 by 61s with "Oslo"
agent completes reserve #1 with {"id":"r-1"}
                             => ignored: DuplicateReply
agent completes reserve #1 with {"id":"r-1"} (redelivered)
                             => ignored: DuplicateReply; again request charge #1 by 61s with "r-1";
                                again request invoice #1 by 61s with "Oslo"

# The first reply counts.
agent completes reserve #1 with {"id":"r-2"}
                             => ignored: DuplicateReply
agent fails reserve #1 "no stock"
                             => ignored: DuplicateReply

# A step that has replied is not requested again.
agent completes invoice #1   => invoice completed (output kept)
agent completes reserve #1 with {"id":"r-1"} (redelivered)
                             => ignored: DuplicateReply; again request charge #1 by 61s with "r-1"
agent completes invoice #1 (redelivered)
                             => ignored: DuplicateReply

agent completes charge #1    => Processed; charge completed (output kept); no longer due;
                                notification to shop: processed
agent completes charge #1    => ignored: DuplicateReply
agent completes charge #1 (redelivered)
                             => ignored: DuplicateReply; again notification to shop: processed
