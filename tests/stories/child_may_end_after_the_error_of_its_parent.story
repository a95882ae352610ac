# The child's report is recorded after the parent's Error. An edited input starts another child.
workflow within 2h
  pack:  workflow packing, body ${ input.n }
  check: path /check

submit with {"n":1}          => Pending; due 30s
wake                         => Processing; submit o-1:pack to packing with 1; request check #1 by 60s
agent fails check #1 "no"    => Error; check failed (failures 1, reason kept);
                                alert check "step check: no"
child of pack is Undone "no boxes"
                             => pack failed (failures 1, reason kept); alert check, pack "step pack: its child
                                task was undone: no boxes; step check: no"
ann resubmits with input {"n":2} because "another size"
                             => Processing; pack running (failures 0); check running (failures 0);
                                input {"n":2} kept; due 60s; submit o-1:pack:c-1 to packing with 2;
                                request check #2 by 60s under key o-1/check/do/c-1;
                                published: resubmit check, pack with edited input
child of pack is Processed with 2
                             => pack completed (output kept)
agent completes check #2     => Processed; check completed (output kept); no longer due
