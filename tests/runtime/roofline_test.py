#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""benchmarks/roofline.py on a model that is quickly counted: every kernel has a class, and its rates are those of the table."""

import json
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "benchmarks"))
import roofline  # pylint: disable=wrong-import-position


def main():
    with open(roofline.TABLE) as file:
        table = json.load(file)
    rates = roofline.Rates(table)
    sizes = [sorted(set(table["gemm"]["bf16"][axis])) for axis in "mnk"]
    place = (len(sizes[0]) - 1) * len(sizes[1]) * len(sizes[2])  # the largest m, the smallest n and k
    m, n, k = sizes[0][-1], sizes[1][0], sizes[2][0]
    want = 2.0 * m * n * k / (table["gemm"]["bf16"]["time_us"][place] * 1e-6)
    assert abs(rates.product_flop_per_s(m, n, k) / want - 1) < 1e-9, "the rate at a measured shape"

    step = roofline.count_step(sys.argv[1], "tiny-gpt", 64, 2, 3)
    unknown = [kernel for kernel in step["kernels"] if roofline.class_of(kernel) == "others"]
    assert not unknown, unknown
    assert step["tokens"] == 384
    # Of three micro-batches, each with four products of every layer, and the head's.
    forward = sum(c["launches"] for k, c in step["kernels"].items() if k.startswith("product forward"))
    assert forward % 3 == 0 and forward // 3 % 4 == 1, forward
    # Of each four products of a layer and micro-batch, in 8 bits: inputs are cast twice and gradients of outputs once, and their
    # magnitudes are looked for once, but for the two that the activation finds. Weights are cast once a step, with two launches.
    narrow = roofline.count_step(sys.argv[1], "tiny-gpt", 64, 2, 3, "fp8")
    products = sum(c["launches"] for k, c in narrow["kernels"].items() if k.startswith("fp8 product"))
    casts = sum(c["launches"] for k, c in narrow["kernels"].items() if roofline.class_of(k) == "casts to 8 bits")
    layers, left = divmod(products, 3 * 12)
    assert layers > 0 and left == 0, products
    assert casts == layers * (3 * (8 + 4 + 6) + 4 * 2), (products, casts)
    assert "casts to 8 bits" in roofline.in_8_bits(step, narrow, rates)
    done = subprocess.run([sys.executable, os.path.join(ROOT, "benchmarks/roofline.py"), sys.argv[1], "tiny-gpt:64:2:3"],
                          stdout=subprocess.PIPE, text=True, check=True)
    assert "| tiny-gpt | 64 | 384 |" in done.stdout and "norms with residuals" in done.stdout, done.stdout
    print("roofline: rates, classes and the page")


main()
