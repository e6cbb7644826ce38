# SPDX-License-Identifier: Apache-2.0
import argparse
import json
import sys

import mpt
from mpt.verify import verify

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m mpt.verify", description="Runs one step of a plan by its framework's code, with fake tensors.")
    parser.add_argument("plan", metavar="PLAN", help="plan.json, of mpt-plan or of Plan.save()")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args()
    try:
        verified = verify(options.plan)
    except mpt.InputError as error:
        print(f"mpt.verify: {error}", file=sys.stderr)
        sys.exit(2)
    print(json.dumps(verified.json, indent=1) if options.json else verified)
