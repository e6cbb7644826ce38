# SPDX-License-Identifier: Apache-2.0
"""Statistics of errors, of orders, and of repeated measurements."""

import math
import statistics


def errors(values):
    """Statistics of the absolute values of relative errors."""
    sizes = [abs(v) for v in values]
    return {"runs": len(sizes), "mean": statistics.fmean(sizes) if sizes else 0.0, "median": statistics.median(sizes) if sizes else 0.0,
            "worst": max(sizes, default=0.0)}


def sign(x):
    return (x > 0) - (x < 0)


def kendall_tau(pairs, resolution=0.0):
    """Kendall's tau-b between measured and predicted (Kendall 1945, Biometrika 33): pairs in the same order minus pairs in the opposite
    one, over the geometric mean of the numbers of pairs not tied in each. 0 without such pairs. Pairs with measured values within
    `resolution` of each other, as a share of the larger, are left out."""
    agreement, in_measured, in_predicted = 0, 0, 0
    for i, (measured, predicted) in enumerate(pairs):
        for other_measured, other_predicted in pairs[:i]:
            a, b = measured - other_measured, predicted - other_predicted
            if resolution and abs(a) <= resolution * max(measured, other_measured):
                continue
            agreement += sign(a) * sign(b)
            in_measured += a != 0
            in_predicted += b != 0
    scale = math.sqrt(in_measured * in_predicted)
    return agreement / scale if scale else 0.0


def repetition(values):
    """The number of things measured twice or more, and the median over them of the mean relative difference of two measurements. Equal
    values are one measurement that was published twice."""
    differences = []
    for of_one in values:
        apart = [abs(a - b) / (0.5 * (a + b)) for i, a in enumerate(of_one) for b in of_one[:i] if a != b]
        if apart:
            differences.append(statistics.fmean(apart))
    return {"runs": len(differences), "difference": statistics.median(differences) if differences else 0.0}


def scatter(difference):
    """The standard deviation of one measurement: half of all pairs of normally distributed values differ by less than 0.954 of it."""
    return difference / 0.954


def reachable_tau(predicted, scatter_of_one):
    """The expected tau of predictions without error, if each measurement were off by a normally distributed share: two values with
    logarithms d apart keep their order with probability (1 + erf(d / (2 scatter))) / 2."""
    agreement, pairs, untied = 0.0, 0, 0
    for i, a in enumerate(predicted):
        for b in predicted[:i]:
            agreement += math.erf(abs(math.log(a / b)) / (2 * scatter_of_one))
            pairs += 1
            untied += a != b
    scale = math.sqrt(pairs * untied)
    return agreement / scale if scale else 0.0
