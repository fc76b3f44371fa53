#!/usr/bin/env python3
"""The times of a tune's candidates, the fastest of each implementation at each tuned size, for buckets where NCCL took part.

    kiln cache export --text --overlay FILE | bench/tuned_times.py [--by PARAMETER]

One JSON object a bucket and size: ns by implementation. With --by all buckets count, and configs with each value of PARAMETER stand apart, as
"push exchanges=2". A tune gives up on candidates that fall behind, so some sizes lack some, and some times are of few samples.
"""
import argparse
import json
import sys

options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
options.add_argument("--by", metavar="PARAMETER")
asked = options.parse_args()

for line in sys.stdin:
    record = json.loads(line)
    times = {}  # by sizes, then by implementation
    for each in record.get("candidates", []):
        if each["verdict"] == "ok":
            at, name = times.setdefault(each["sizes"], {}), each["implementation"]
            if asked.by:
                name = " ".join([name, *(word for word in each["config"].split() if word.startswith(f"{asked.by}="))])
            at[name] = min(at.get(name, each["cost_ns"]), each["cost_ns"])
    for sizes, ns in times.items():
        if asked.by or any(name.startswith("nccl") for name in ns):
            print(json.dumps({"op": record["op"], "bucket": record["bucket"], "sizes": sizes, "ns": ns}))
