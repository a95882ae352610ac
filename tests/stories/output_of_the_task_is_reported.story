# The output that the workflow defines is stored and sent to the client.
workflow within 10m, output {"to":"${ input.to }","parcel":"${ steps.ship.output.parcel }"}
  ship: path /ship

submit reply_to shop with {"to":"Ada"}
                             => Pending; due 30s
wake                         => Processing; request ship #1 by 60s
agent completes ship #1 with {"parcel":3}
                             => Processed; ship completed (output kept);
                                returns {"to":"Ada","parcel":3}; no longer due;
                                notification to shop: processed with {"to":"Ada","parcel":3}
agent completes ship #1 with {"parcel":3} (redelivered)
                             => ignored: DuplicateReply;
                                again notification to shop: processed with {"to":"Ada","parcel":3}
