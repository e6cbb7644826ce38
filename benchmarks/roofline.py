# SPDX-License-Identifier: Apache-2.0
"""The least time of a step on an H100, kernel by kernel, compared with the project's goal: writes a page in Markdown.

Usage: roofline.py STEP_KERNELS [MODEL:SEQUENCE:MICRO_BATCH:MICRO_BATCHES ...]

STEP_KERNELS is build/release/tests/step_kernels, which counts launches, bytes and FLOPs. Rates are measured ones, with their
sources below. Launches cost nothing here as long as the GPU has work queued, which one read a step permits.
"""

import bisect
import json
import math
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TABLE = os.path.join(ROOT, "profiler/hardware/kernels/h100-sxm-80gb.json")
PEAK_FLOP_PER_S = 989e12    # bf16, dense: NVIDIA H100 SXM datasheet
PEAK_BYTES_PER_S = 3.35e12  # the same
# Share of the peak that large copies reach: 3.27 of 4.8 TB/s on an H200 (reports/results/gpu.md).
COPY_SHARE = 3.27 / 4.8
LEAST_KERNEL_S = 3e-6       # of a kernel that has little to do
# Model, sequence, sequences per micro-batch, micro-batches, and the goal as a share of the peak.
GOALS = [("gpt2-1.5b", 4096, 2, 8, 0.50), ("llama3.2-1b", 4096, 2, 8, 0.50), ("gpt2-124m", 1024, 32, 4, 0.40)]
MOST_EXCESS = 1.3
IN_8_BITS = "llama3.2-1b"
# The class of a kernel, by the first part of its name.
CLASSES = [("fp8 product forward", "products in 8 bits, forward"), ("fp8 product backward", "products in 8 bits, backward"),
           ("magnitude", "casts to 8 bits"), ("narrow", "casts to 8 bits"), ("product forward", "products, forward"), ("product backward", "products, backward"),
           ("attention forward", "attention, forward"), ("attention backward", "attention, backward"),
           ("norm_forward", "norms with residuals, forward"), ("norm_backward", "norms with residuals, backward"),
           ("partial_column_sums", "sums over rows (biases, norms)"), ("add_column_sums", "sums over rows (biases, norms)"),
           ("activation", "activations"), ("residual_add", "additions alone"), ("epilogue", "epilogues of products"), ("rotary", "rotary positions"),
           ("loss", "loss"), ("sum_kernel", "loss"), ("embedding", "embeddings and positions"), ("position", "embeddings and positions"),
           ("adamw", "optimizer"), ("sum_of_squares", "gradient norm"), ("copy", "copies"), ("zero", "copies")]


def class_of(kernel):
    return next((name for start, name in CLASSES if kernel.startswith(start)), "others")


def between(grid, value):
    """The two grid points around a value, and the share of the second, on a logarithmic scale."""
    upper = min(max(bisect.bisect_left(grid, value), 1), len(grid) - 1)
    low, high = grid[upper - 1], grid[upper]
    return upper - 1, upper, min(max(((math.log(value) - math.log(low)) / (math.log(high) - math.log(low))), 0.0), 1.0)


def ends(place):
    """The two grid points with the weight of each."""
    low, high, share = place
    return (low, 1.0 - share), (high, share)


class Rates:
    def __init__(self, table):
        self.gemm = table["gemm"]
        self.attention, self.training = table["attention_forward"], table["training_attention"]

    def product_flop_per_s(self, m, n, k, precision="bf16"):
        """Interpolated between the measured shapes; outside them the rate of the nearest ones."""
        gemm = self.gemm[precision]
        sizes = [sorted(set(gemm[axis])) for axis in "mnk"]
        places = [between(grid, size) for grid, size in zip(sizes, (m, n, k))]
        total = 0.0
        for corner in range(8):
            weight, index, flop = 1.0, 0, 2.0
            for axis, (low, high, share) in enumerate(places):
                second = corner >> axis & 1
                at = high if second else low
                weight *= share if second else 1.0 - share
                index = index * len(sizes[axis]) + at
                flop *= sizes[axis][at]
            total += weight * flop / (gemm["time_us"][index] * 1e-6)
        return total

    def attention_flop_per_s(self, direction, batch, sequence, heads, head_dim):
        """At the nearest head size: the rate of an inference's forward, times the share that training reaches."""
        nearest = min(self.attention, key=lambda t: abs(math.log(t["head_dim"] / head_dim)))
        rows, columns = between(nearest["sequence"], sequence), between(nearest["heads"], batch * heads)
        rate = sum((row[1] * column[1]) * nearest["tflop_per_s"][row[0] * len(nearest["heads"]) + column[0]]
                   for row in ends(rows) for column in ends(columns))
        dims, sequences = self.training["head_dim"], self.training["sequence"]
        first = min(range(len(dims)), key=lambda i: abs(math.log(dims[i] / head_dim))) * len(sequences)
        return rate * sum(weight * self.training["bf16"][direction][first + at] for at, weight in ends(between(sequences, sequence))) * 1e12

    def seconds(self, kernel, count):
        """The time of all launches of a kernel together."""
        shape = [int(word) for word in kernel.split() if word.isdigit()]
        floor = count["launches"] * LEAST_KERNEL_S
        moving = (count["read_bytes"] + count["written_bytes"]) / (PEAK_BYTES_PER_S * COPY_SHARE)
        if kernel.startswith(("product", "fp8 product")):
            return max(floor, moving, count["flop"] / self.product_flop_per_s(*shape, "fp8" if kernel.startswith("fp8") else "bf16"))
        if kernel.startswith("attention"):
            return max(floor, moving, count["flop"] / self.attention_flop_per_s(kernel.split()[1], *shape))
        return max(floor, moving)


def count_step(program, model, sequence, micro_batch, micro_batches, precision="bf16"):
    command = [program, model, str(sequence), str(micro_batch), str(micro_batches)] + (["fp8"] if precision == "fp8" else [])
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def classes_of(step, rates):
    """Launches, bytes, FLOPs and seconds of each class, the longest first."""
    found = {}
    for kernel, count in step["kernels"].items():
        of_class = found.setdefault(class_of(kernel), [0, 0, 0.0, 0.0])
        for i, value in enumerate((count["launches"], count["read_bytes"] + count["written_bytes"], count["flop"],
                                   rates.seconds(kernel, count))):
            of_class[i] += value
    return sorted(found.items(), key=lambda item: -item[1][3])


def seconds_of(step, rates):
    return sum(of_class[3] for _, of_class in classes_of(step, rates))


def model_flop(step):
    """By the common count: three times the forward pass."""
    return 3.0 * sum(c["flop"] for k, c in step["kernels"].items() if " forward" in k)


def table_of(title, rows):
    lines = ["", f"## {title}", "", "| kernels | launches | GB | TFLOP | ms | share of the step |", "| --- " * 6 + "|"]
    whole = sum(of_class[3] for _, of_class in rows)
    return lines + [f"| {name} | {launches:,} | {moved / 1e9:,.1f} | {flop / 1e12:,.1f} | {seconds * 1e3:,.1f} | {seconds / whole:.1%} |"
                    for name, (launches, moved, flop, seconds) in rows]


def in_8_bits(step, narrow, rates):
    """The same step with `--precision fp8`, and the part of the gain that is left after casts."""
    rows = classes_of(narrow, rates)
    took, takes = seconds_of(step, rates), seconds_of(narrow, rates)
    casts = dict(rows)["casts to 8 bits"]
    return "\n".join(table_of(f"{step['model']}, sequence {step['sequence']}, products in 8 bits", rows) +
                     ["", f"A step takes {takes * 1e3:.0f} ms, in bf16 {took * 1e3:.0f} ms. Without casts it would take {(takes - casts[3]) * 1e3:.0f} ms.",
                      "A weight is cast once a step, in both orders. An input is read twice, once for each order, and the gradient of an output once.",
                      "Each is also read once for its scale, but what an activation or its gradient writes: they find its largest magnitude on the way."]) + "\n"


def row_of(name, step, goal, rates):
    seconds = seconds_of(step, rates)
    share = model_flop(step) / seconds / PEAK_FLOP_PER_S
    return (f"| {name} | {step['sequence']} | {step['tokens']:,} | {seconds * 1e3:.0f} ms | {step['tokens'] / seconds:,.0f} | "
            f"{share:.1%} | {goal(share, seconds)} |")


def page(steps, rates, narrow=None):
    lines = ["# Roofline of a step on one H100", "",
             "Written by `benchmarks/roofline.py build/release/tests/step_kernels`. Nothing here was measured as a whole: kernels, launches and",
             "bytes are counted (`tests/support/counting_device.h`, compared with the kernels' own accesses in a test), and rates are:", "",
             "- products and attention: the measured tables of `profiler/hardware/kernels/h100-sxm-80gb.json`;",
             f"- all else: {PEAK_BYTES_PER_S * COPY_SHARE / 1e12:.2f} TB/s, the share of the peak that copies reach on an H200 (`gpu.md`), "
             f"and at least {LEAST_KERNEL_S * 1e6:.0f} us a kernel.", "",
             "The share of the peak is that of bf16, also where products are in 8 bits.", "",
             "Epilogues of products are GELU, its gradient and the sums for biases. Their price is the time of the bytes that they add,",
             "although the product may hide it. No GPU has timed them yet.", "",
             "| model | sequence | tokens per step | step | tokens/s | share of the peak | goal |", "| --- " * 7 + "|"]
    for step, goal in steps:
        lines.append(row_of(step["model"], step, lambda share, _, goal=goal: f"{'over' if share >= goal else '**under**'} {goal:.0%}", rates))
        if narrow is not None and narrow["model"] == step["model"]:
            wide = seconds_of(step, rates)
            lines.append(row_of(f"{step['model']} in fp8", narrow,
                                lambda _, seconds, wide=wide: f"{'faster' if seconds < wide else '**slower**'} than bf16", rates))
    for step, _ in steps:
        rows = classes_of(step, rates)
        lines += table_of(f"{step['model']}, sequence {step['sequence']}", rows)
        beside = {name: of_class[1] for name, of_class in rows if not name.startswith(("products", "attention"))}
        moved = sum(beside.values())
        needed = sum(size for name, size in beside.items() if not name.startswith("sums over rows"))  # if their inputs are still in registers
        lines += ["", f"Beside products and attention {moved / 1e9:,.1f} GB move, {moved / needed:.2f} times what would move if sums over rows were",
                  "made where their inputs are at hand. "
                  f"{'This is within' if moved / needed <= MOST_EXCESS else 'This is over'} the {MOST_EXCESS} times of the goal."]
    return "\n".join(lines) + "\n"


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    wanted = GOALS
    if len(sys.argv) > 2:
        wanted = [(m, int(s), int(b), int(n), 0.5) for m, s, b, n in (text.split(":") for text in sys.argv[2:])]
    with open(TABLE) as file:
        rates = Rates(json.load(file))
    steps = [(count_step(sys.argv[1], *of_model), goal) for *of_model, goal in wanted]
    if wanted is not GOALS:
        print(page(steps, rates), end="")
        return
    model = next(goal for goal in GOALS if goal[0] == IN_8_BITS)
    step = next(step for step, _ in steps if step["model"] == IN_8_BITS)
    narrow = count_step(sys.argv[1], *model[:4], "fp8")
    print(page(steps, rates, narrow), end="")
    print(in_8_bits(step, narrow, rates), end="")


if __name__ == "__main__":
    main()
