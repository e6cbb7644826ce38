# SPDX-License-Identifier: Apache-2.0
"""Questions of public threads (questions.json), whose answers are known by what the askers or maintainers saw.

Usage: questions_test.py FOLDER_OF_PROGRAMS

A row says whether its layout fits, what its fullest GPU holds, how fast it is, and which switch cures it (`remedy`: alone it makes the
layout fit) or helps (`helps`: it saves at least a tenth). A row that is `answered` wrong must still be wrong: else mend the row.
"""

import json
import os
import subprocess
import sys

PROGRAMS = os.path.abspath(sys.argv[1])
MOST_WRONG = 6  # of 30


def answer(command, *words):
    done = subprocess.run([f"{PROGRAMS}/mpt-plan", command, *words, "--json", "--threads", "2"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, timeout=300)
    assert done.returncode == 0, f"{command} {' '.join(words)}: exit {done.returncode}\n{done.stderr}"
    return json.loads(done.stdout)


def faults(row):
    """What the answer to a row has otherwise than the thread."""
    words, found = row["command"].split(), []
    plan = answer("estimate", *words)
    prediction, within = plan["prediction"], row.get("within")

    def near(name, predicted, seen):
        if abs(predicted / seen - 1.0) > within:
            found.append(f"{name}: {predicted:.4g} for {seen:.4g}")

    if "fits" in row and (prediction["confidence"]["fits"] >= 0.5) != row["fits"]:
        found.append(f"fits with probability {prediction['confidence']['fits']:.2f}")
    if "peak_gib" in row:
        near("GiB", max(rank["peak_bytes"] for rank in prediction["memory"]) / 2**30, row["peak_gib"])
    if "reserved_gib" in row:  # with what the allocator keeps for itself
        allocator = plan["layout"]["execution"]
        kept = 1 + allocator.get("allocator_slack", 0.0) + allocator.get("allocator_cache", 0.0)
        near("GiB reserved", kept * max(rank["peak_bytes"] for rank in prediction["memory"]) / 2**30, row["reserved_gib"])
    if "step_s" in row:
        near("s", prediction["step_time_s"], row["step_s"])
    if "tokens_per_s_per_gpu" in row:
        near("tokens/s", prediction["tokens_per_s"] / plan["cluster"]["devices"], row["tokens_per_s_per_gpu"])
    if "remedy" in row or "helps" in row:
        switches = {switch["option"]: switch for switch in answer("doctor", *words)["alone"]}
        switch = switches.get(row.get("remedy", row.get("helps")))
        if switch is None:
            found.append(f"is not offered: {row.get('remedy', row.get('helps'))}; {sorted(switches)}")
        elif "remedy" in row and not switch["fits"]:
            found.append(f"does not cure it: {switch}")
        elif switch["saved_bytes"] < 0.1 * max(rank["peak_bytes"] for rank in prediction["memory"]):
            found.append(f"does not help: {switch}")
    return found


def main():
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "questions.json"), encoding="utf-8") as file:
        rows = json.load(file)
    failures, wrong = [], 0
    for row in rows:
        found = faults(row)
        known_wrong = row.get("answered") == "wrong"
        wrong += bool(found)
        if bool(found) != known_wrong:
            failures.append(f"{row['source']}: {row['asked']}: {'; '.join(found) or 'is answered right now'}")
    assert len(rows) >= 30
    if wrong > MOST_WRONG:
        failures.append(f"{wrong} of {len(rows)} are answered wrong")
    print(*failures, f"{len(rows) - wrong} of {len(rows)} threads are answered right", sep="\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
