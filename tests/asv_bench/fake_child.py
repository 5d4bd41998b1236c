"""A process of the gate that times nothing: it answers with made-up seconds.

FAKE is a JSON object: "folder" of the environment, "tables", "factors" of cells by their names, "missing" cells, and
"dies" to end before the first turn.
"""

import itertools
import json
import os
import sys

fake = json.loads(os.environ["FAKE"])
wobble = itertools.cycle([1.0, 1.004, 0.998, 1.001, 0.997])
case = ""
for line in sys.stdin:
    request = json.loads(line)
    answer = {}
    if request["do"] == "hello":
        versions = {"Python": "3", "numba": "1", "numpy": fake.get("numpy", "2")}
        answer = {"dmlcpu": fake["folder"] + "/dmlcpu", "threads": 2, "versions": versions}
    elif request["do"] == "tables":
        answer = fake["tables"]
    elif request["do"] == "build":
        case = request["case"]
        answer = {"missing": fake["missing"][case]} if case in fake.get("missing", {}) else {"seconds": 1e-3}
    elif fake.get("dies"):
        sys.exit(3)
    else:
        answer = {"seconds": 1e-3 * fake.get("factors", {}).get(case, 1) * next(wobble)}
    print(json.dumps(answer), flush=True)
