#!/usr/bin/env python3
"""The times of a tune's candidates, the fastest of each implementation at each tuned size, for buckets where NCCL took part.

    kiln cache export --text --overlay FILE | bench/tuned_times.py

One JSON object a bucket and size: ns by implementation. A tune gives up on candidates that fall behind, so some sizes lack some.
"""
import json
import sys

for line in sys.stdin:
    record = json.loads(line)
    times = {}  # by sizes, then by implementation
    for each in record.get("candidates", []):
        if each["verdict"] == "ok":
            at, name = times.setdefault(each["sizes"], {}), each["implementation"]
            at[name] = min(at.get(name, each["cost_ns"]), each["cost_ns"])
    for sizes, ns in times.items():
        if any(name.startswith("nccl") for name in ns):
            print(json.dumps({"op": record["op"], "bucket": record["bucket"], "sizes": sizes, "ns": ns}))
