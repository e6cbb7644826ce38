# SPDX-License-Identifier: Apache-2.0
"""Fits the fitted constants of planner/cost/calibration.json to published runs, within their physical ranges.

Usage: fit_calibration.py FOLDER_OF_PROGRAMS SET [--sweeps N] [--every N] [--leave-out FAMILY|each] [--constant NAME] [--write FILE]

Coordinate descent on the mean absolute error of step times, an error above 60 % counting as 60 %. With --leave-out each,
every family is predicted with constants fitted to all others, starting from the middle of their ranges. So nothing of the family is in
them: the result is the error on runs of a source not used for tuning. --every takes each n-th of the runs to fit to. --constant
fits only that one, to the runs that depend on it.
"""

import argparse
import json
import pathlib

import predictions
import records

CAP = 0.6


def constants_to_fit():
    """The constants that a fit may change, by name. Measured ones and those from literature stay."""
    constants = json.loads(pathlib.Path(predictions.CONSTANTS).read_text())
    return {constant["name"]: constant for constant in constants if constant["origin"] == "fitted"}


class Fit:
    def __init__(self, programs, name, left_out=None, every=1, only=None):
        self.programs = programs
        self.constants = {key: constant for key, constant in constants_to_fit().items() if only in (None, key)}
        self.runs = list(records.of_set(name).values())
        if only:
            least, most = (self.predict({only: bound}) for bound in self.constants[only]["range"])
            self.runs = [run for run in self.runs if least.get(run["id"]) != most.get(run["id"])]
        self.family = {run["id"]: run["family"] for run in self.runs}
        self.fitted = [run for run in self.runs if run["family"] != left_out][::every]

    def predict(self, constants, runs=None):
        found = predictions.with_constants(self.programs, constants, runs or self.runs)
        return {r["id"]: r["predicted_iter_time_s"] / r["measured_iter_time_s"] - 1
                for r in found if not r["skipped"] and r["measured_iter_time_s"]}

    def loss(self, constants):
        errors = [min(CAP, abs(e)) for e in self.predict(constants, self.fitted).values()]
        return sum(errors) / len(errors)

    def descend(self, constants, sweeps, say=lambda text: None):
        best, step = self.loss(constants), 0.25
        for sweep in range(sweeps):
            for name, constant in self.constants.items():
                low, high = constant["range"]
                value = constants.get(name, constant["value"])
                for change in (step, -step):
                    trial = {**constants, name: min(high, max(low, value + change * (high - low)))}
                    loss = self.loss(trial)
                    if loss < best - 1e-5:
                        best, constants = loss, trial
                        break
            step *= 0.6
            say(f"sweep {sweep + 1}: mean {best * 100:.2f} % {json.dumps({k: float(f'{v:.4g}') for k, v in constants.items()})}")
        return constants


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("programs")
    parser.add_argument("set")
    parser.add_argument("--sweeps", type=int, default=3)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--leave-out")
    parser.add_argument("--constant", choices=sorted(constants_to_fit()))
    parser.add_argument("--write")
    options = parser.parse_args()
    if options.leave_out == "each":
        families = sorted(set(Fit(options.programs, options.set, only=options.constant).family.values()))
        errors = []
        print("| family left out | runs | mean | median |\n| --- | --- | --- | --- |")
        for family in families:
            fit = Fit(options.programs, options.set, family, options.every, options.constant)
            constants = fit.descend({name: sum(c["range"]) / 2 for name, c in fit.constants.items()}, options.sweeps)
            own = sorted(abs(e) for name, e in fit.predict(constants).items() if fit.family[name] == family)
            errors += own
            print(f"| {family} | {len(own)} | {100 * sum(own) / max(1, len(own)):.1f} % | {100 * own[len(own) // 2]:.1f} % |", flush=True)
        errors.sort()
        print(f"| all | {len(errors)} | {100 * sum(errors) / len(errors):.1f} % | {100 * errors[len(errors) // 2]:.1f} % |")
        return
    fit = Fit(options.programs, options.set, options.leave_out, options.every, options.constant)
    constants = fit.descend({}, options.sweeps, lambda text: print(text, flush=True))
    if options.write:
        pathlib.Path(options.write).write_text(json.dumps(constants, indent=1))


main()
