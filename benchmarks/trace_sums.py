# SPDX-License-Identifier: Apache-2.0
"""How far vTrain's single-node times are from sums over layers, and the time of its output layers.

Usage: trace_sums.py GROUND_TRUTH_SINGLE.csv   (data/ of VIA-Research/vTrain, f8dda84)

docs/validation.md and the test OutputLayersOfOddVocabulariesTakeTheirMeasuredTime use this output.
"""

import csv
import statistics
import sys

WORDS = 50257  # divided by the tensor ranks without padding, rounded down
COLUMNS = ("global batch", "micro batch", "hidden size", "# layers", "tensor parallelism", "data parallelism", "pipeline parallelism")


def read(path):
    """Milliseconds by (hidden, tensor, data, pipeline, micro-batch, micro-batches, layers)."""
    times = {}
    with open(path, encoding="utf-8-sig", newline="") as file:
        for row in csv.DictReader(file):
            batch, micro, hidden, layers, tensor, data, pipeline = (int(row[c]) for c in COLUMNS)
            times[hidden, tensor, data, pipeline, micro, batch // data // micro, layers] = float(row["iteration time (ms)"])
    return times


def off_the_line(times):
    """The distance of each time of 16 layers from the line through those of 12 and 24, in microseconds."""
    found = []
    for key, time in times.items():
        few, many = times.get((*key[:-1], 12)), times.get((*key[:-1], 24))
        if key[-1] == 16 and few and many:
            found.append(1e3 * abs(time - few - (many - few) / 3))
    return sorted(found)


def head_ms(times, hidden, tensor, micro):
    """The time of a micro-batch without its layers, from runs without a pipeline."""
    def at(count, layers):
        return times[hidden, tensor, 2 if tensor == 1 else 1, 1, micro, count, layers]

    few, many = 2, 16 // micro
    per_layer = (at(many, 24) - at(many, 12) - at(few, 24) + at(few, 12)) / 12 / (many - few)
    return (at(many, 12) - at(few, 12)) / (many - few) - 12 * per_layer


def main():
    times = read(sys.argv[1])
    off = off_the_line(times)
    print(f"{len(times)} times; {len(off)} of 16 layers lie off the line of 12 and 24 by {statistics.median(off):.1f} us in the median, "
          f"{off[-1]:.0f} us at most")
    for hidden in (2048, 1024):
        for tensor in (1, 4, 8):
            more = head_ms(times, hidden, tensor, 4) - head_ms(times, hidden, tensor, 2)
            print(f"hidden {hidden}, {WORDS // tensor} words: 2,048 tokens more take {more:.2f} ms")


main()
