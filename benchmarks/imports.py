# SPDX-License-Identifier: Apache-2.0
"""How mpt-plan reads other projects' recipes: the launch scripts and functional tests of Megatron-LM, and the configurations of torchtitan.
For each recipe: the parameters that it finds and the published ones, or the reason for a refusal.

Usage: imports.py BIN MEGATRON_LM TORCHTITAN [-o reports/results/imports.md]. The two are folders with their sources.
"""

import argparse
import collections
import json
import os
import re
import subprocess
import tempfile

CLUSTER = "dgx-h100:128"  # 1,024 GPUs: enough for every degree in those files
TESTS_CLUSTER = "dgx-h100:1"  # of the functional tests
CLOSE = 0.02
# Published parameters of a model, by a pattern of the recipe's name. The first match counts.
PUBLISHED = [
    (r"gpt3_175b|sc21", 175e9), (r"train_gpt3_15b|15b_8t", 15.6e9), (r"mixtral_8x7b", 46.7e9), (r"gpt-?oss-?120b|gpt_oss_120b", 116.8e9),
    (r"gpt-?oss-?20b|gpt_oss_20b", 20.9e9), (r"DeepSeek-R1|deepseek_v3_671b|mfsdp_deepseek_v3", 671e9), (r"DeepSeek-V2-Lite|deepseek_v3_16b", 15.7e9),
    (r"Kimi-K2-Instruct", 1.026e12), (r"Llama-4-Scout", 107.8e9), (r"Nemotron-Mini-4B", 4.19e9),
    (r"llama3.?1?.?405b", 405.9e9), (r"llama3_70b", 70.6e9), (r"(?i)llama-?3(p|\.)?1?[-_]?8b", 8.03e9), (r"(?i)llama-3\.2-1b|llama3_1b", 1.236e9),
    (r"(?i)qwen3[-_]0[._]6b", 0.596e9), (r"(?i)qwen3[-_]1[._]7b", 1.72e9), (r"(?i)qwen3[-_]4b", 4.02e9), (r"(?i)qwen3[-_]8b", 8.19e9),
    (r"(?i)qwen3[-_]14b", 14.77e9), (r"(?i)qwen3[-_]32b", 32.76e9), (r"(?i)qwen3[-_]30b[-_]a3b", 30.5e9), (r"(?i)qwen3[-_]235b", 235.1e9),
    (r"(?i)qwen[-_]?2[.p]5-0\.5b", 0.494e9), (r"(?i)qwen[-_]?2[.p]5[-_]3b", 3.09e9), (r"(?i)qwen[-_]?2[.p]5.*[-_]7b", 7.62e9), (r"(?i)qwen[-_]?2[.p]5[-_]32b", 32.76e9),
]


def checked(binary, folder, cluster):
    with tempfile.TemporaryDirectory() as scratch:
        told = os.path.join(scratch, "check.json")
        done = subprocess.run([os.path.join(binary, "mpt-plan"), "check", ".", "--cluster", cluster, "--allow-unread", "--json", told],
                              cwd=folder, capture_output=True, text=True)
        if done.returncode not in (0, 1):
            raise SystemExit(done.stderr)
        with open(told) as file:
            return json.load(file)


def billions(count):
    return f"{count / 1e9:,.2f} B" if count >= 1e9 else f"{count / 1e6:,.1f} M"


def published(name):
    return next((count for pattern, count in PUBLISHED if re.search(pattern, name)), None)


def plain(text):
    return re.sub(r"\s+", " ", text).replace("|", "\\|")


def reason_of(recipe):
    reason = plain(recipe["reason"])
    return reason if len(reason) <= 110 else reason[:107] + "..."


def row(recipe):
    name, count = recipe["recipe"], recipe["parameters"]
    if not count:
        return f"| {plain(name)} | refused | | | {reason_of(recipe)} |"
    known = published(name)
    vocabulary = next((n for n in recipe["notes"] if n.startswith("no --vocab-size: the tokenizer")), "")
    said = "as published" if known and abs(count / known - 1) <= CLOSE else "differs" if known else "GPT-2's vocabulary is taken" if vocabulary else ""
    return f"| {plain(name)} | read | {billions(count)} | {billions(known) if known else ''} | {said} |"


def table(recipes):
    lines = ["| recipe | | parameters | published | |", "| --- | --- | ---: | ---: | --- |"]
    return "\n".join(lines + [row(recipe) for recipe in recipes])


def revision(folder):
    done = subprocess.run(["git", "-C", folder, "rev-parse", "HEAD"], capture_output=True, text=True)
    return f" at {done.stdout.strip()[:12]}" if done.returncode == 0 else ""


def counts(recipes):
    read = [recipe for recipe in recipes if recipe["parameters"]]
    known = [recipe for recipe in read if published(recipe["recipe"])]
    right = [recipe for recipe in known if abs(recipe["parameters"] / published(recipe["recipe"]) - 1) <= CLOSE]
    return (f"{len(read)} of {len(recipes)} are read; of {len(known)} the parameters are published, and {len(right)} of those agree within "
            f"{CLOSE:.0%}. {len(recipes) - len(read)} are refused with a reason.")


def functional_tests(told):
    """If a test of these runs, then calling it illegal or too large is a false alarm."""
    judged = [r for r in told["recipes"] if r["verdict"] != "not_read"]
    alarms = [r for r in judged if r["verdict"] != "fits"]
    lines = [f"{len(told['recipes'])} tests have a configuration of a model. {len(told['recipes']) - len(judged)} are no training of a "
             f"decoder. Of the other {len(judged)}, which run, {len(alarms)} are called illegal or said not to fit: {len(alarms) / len(judged):.1%}.", ""]
    lines += ["| test | verdict | reason |", "| --- | --- | --- |"]
    lines += [f"| {plain(os.path.dirname(r['recipe']))} | {r['verdict'].replace('_', ' ')} | {plain(r['reason'])} |" for r in alarms]
    reasons = collections.Counter(re.sub(r'"[^"]*"', "...", r["reason"]) for r in told["recipes"]
                                  if r["verdict"] == "not_read")
    lines += ["", "| why not judged | tests |", "| --- | ---: |"] + [f"| {plain(reason)[:110]} | {n} |" for reason, n in reasons.most_common()]
    return "\n".join(lines)


def page(binary, megatron, torchtitan):
    scripts = checked(binary, megatron, CLUSTER)
    own = [r for r in scripts["recipes"] if r["recipe"].endswith(".sh")]
    without = sum(str(file).endswith(".sh") for file in scripts["others"])
    titan = checked(binary, os.path.join(torchtitan, "torchtitan"), CLUSTER)["recipes"]
    tests = checked(binary, os.path.join(megatron, "tests/functional_tests/test_cases"), TESTS_CLUSTER)
    return f"""# Recipes of other projects

Written by `benchmarks/imports.py` with `mpt-plan check`. Each recipe is read with its model's parameters, or refused with a reason.

## Megatron-LM's launch scripts

Its tree{revision(megatron)} has {len(own) + without} shell scripts. {without} of them say nothing of a model. {counts(own)}

{table(own)}

## torchtitan's configurations

The functions of its `config_registry.py` files{revision(torchtitan)}. {counts(titan)}

{table(titan)}

## Megatron-LM's functional tests

They run, on one node of eight GPUs. {functional_tests(tests)}
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin")
    parser.add_argument("megatron")
    parser.add_argument("torchtitan")
    parser.add_argument("-o", "--output", default="reports/results/imports.md")
    o = parser.parse_args()
    text = page(os.path.abspath(o.bin), o.megatron, o.torchtitan)
    with open(o.output, "w") as file:
        file.write(text)


if __name__ == "__main__":
    main()
