# SPDX-License-Identifier: Apache-2.0
"""What mpt-plan says of the recipes of a framework's own repository, each on the GPUs that its owner names. Writes a page with a verdict for
each recipe, and totals; never the files.

Usage: recipes.py BIN CHECKOUT... [-o reports/results/recipes.md] [--json FILE]. A CHECKOUT is a work tree of NVIDIA-NeMo/Automodel,
pytorch/torchtitan, NVIDIA-NeMo/Megatron-Bridge or NVIDIA/Megatron-LM.
"""

import argparse
import collections
import glob
import json
import os
import re
import subprocess
import tempfile

VERDICTS = ["fits", "illegal", "does_not_fit", "not_read"]
APART = "cannot_judge"
NO_DECODER = re.compile(r"MODE: inference|it starts (?!pretrain_gpt)|no language model|/flux/|/t5/")  # no training that plans describe
MOST_NODES = 128


def check(binary, root, files, cluster, gpus=0):
    """The verdicts by recipe, on a cluster."""
    with tempfile.TemporaryDirectory() as scratch:
        told = os.path.join(scratch, "check.json")
        more = ["--gpus", str(gpus)] if gpus else []
        done = subprocess.run([os.path.join(binary, "mpt-plan"), "check", *files, "--cluster", cluster, *more, "--allow-unread", "--json", told],
                              cwd=root, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if not os.path.exists(told):
            raise SystemExit(f"mpt-plan check on {cluster}: {done.stderr.strip()[-400:]}")
        with open(told, encoding="utf-8") as file:
            return {one["recipe"]: one for one in json.load(file)["recipes"]}


def grouped(binary, root, places):
    """`places` is {file: (cluster, GPUs)}; files of one place are checked by one command."""
    files, found = collections.defaultdict(list), {}
    for path, place in places.items():
        files[place].append(path)
    for (cluster, gpus), paths in sorted(files.items()):
        for name, one in check(binary, root, sorted(paths), cluster, gpus).items():
            found[name] = {**one, "on": f"{gpus} x {cluster.split(':')[0]}"}
    return found


def override(text, key, value):
    """A YAML text with another value of a key such as step_scheduler.local_batch_size, which stands in blocks."""
    start, end, indent = 0, len(text), ""
    *blocks, last = key.split(".")
    for name in blocks:
        block = re.compile(rf"^{indent}{name}:.*\n((?:{indent} .*\n|\s*#.*\n|\s*\n)*)", re.MULTILINE).search(text, start, end)
        if block is None:
            return text
        start, end, indent = block.start(1), block.end(1), indent + "  "
    line = re.compile(rf"^{indent}{last}:.*\n", re.MULTILINE).search(text, start, end)
    at = line.span() if line else (start, start)
    return f"{text[:at[0]]}{indent}{last}: {value}\n{text[at[1]:]}"


def as_in_ci(text, block):
    """Its values in the owner's nightly runs (tests/ci_tests/README.md, scripts/config_templates/ci_config.yaml)."""
    for name, key in [("local_batch_size", "step_scheduler.local_batch_size"), ("ep_size", "distributed.ep_size")]:
        for value in re.findall(rf"^  {name}: *(\w+)", block, re.MULTILINE):
            text = override(text, key, value)
    nightly = re.search(r"^  nightly:.*\n((?:    .*\n)*)", block, re.MULTILINE)
    for key, value in re.findall(r"^    ([\w.]+): *(\S+)$", nightly.group(1) if nightly else "", re.MULTILINE):
        text = override(text, key, value)
    return text


def automodel(binary, root):
    """Recipes of language models that the owner's CI runs, with the values that it sets there: a block `ci` says on how many nodes, and of which kind."""
    places = {}
    with tempfile.TemporaryDirectory() as scratch:
        for path in sorted(glob.glob("examples/llm_finetune/**/*.yaml", root_dir=root, recursive=True) +
                           glob.glob("examples/llm_pretrain/**/*.yaml", root_dir=root, recursive=True)):
            with open(os.path.join(root, path), encoding="utf-8") as file:
                text = file.read() + "\n"
            block = re.search(r"^ci:\n((?:[ #].*\n|\n)*)", text, re.MULTILINE)
            if block is None:
                continue
            said = dict(re.findall(r"^  (\w+): *\"?(\w+)", block.group(1), re.MULTILINE))
            nodes = int(said.get("nodes", 1))
            on_racks = said.get("cluster_tag") == "gb200"
            gpus = nodes * int(said.get("nproc_per_node", 4 if on_racks else 8))
            places[path] = (f"gb200-nvl72:{-(-gpus // 72)}" if on_racks else f"dgx-h100:{nodes}", gpus)
            os.makedirs(os.path.join(scratch, os.path.dirname(path)), exist_ok=True)
            with open(os.path.join(scratch, path), "w", encoding="utf-8") as file:
                file.write(as_in_ci(text, block.group(1)))
        return grouped(binary, scratch, places)


def megatron(binary, root):
    """Functional tests. Files below tests/test_utils/recipes say on how many nodes of which kind they run."""
    places, folder = {}, "tests/functional_tests/test_cases"
    for path in sorted(glob.glob("tests/test_utils/recipes/*/*.yaml", root_dir=root)):  # gb200 before h100, which is preferred
        with open(os.path.join(root, path), encoding="utf-8") as file:
            text = file.read()
        said = dict(re.findall(r"^  (model|nodes): (\S+)", text, re.MULTILINE))
        nodes, on_racks = int(said.get("nodes", 1)), "gb200" in path.split("/")
        place = ("gb200-nvl72:1", 4 * nodes) if on_racks else (f"dgx-h100:{nodes}", 8 * nodes)
        for name in re.findall(r"test_case: \[([^\],]*)\]", text):
            case = f"{folder}/{said.get('model')}/{name}/model_config.yaml"
            if os.path.exists(os.path.join(root, case)):
                places[case] = place
    return grouped(binary, root, places)


def by_smallest_cluster(binary, root, files):
    """Recipes that name no GPUs: on the smallest cluster where they fit, in its newest kind where a precision asks for that."""
    found = {}
    for kind in ("dgx-h100", "dgx-b200"):
        nodes = 1
        while nodes <= MOST_NODES:
            for name, one in check(binary, root, files, f"{kind}:{nodes}").items():
                if name not in found or found[name]["verdict"] in ("illegal", "does_not_fit") and one["verdict"] == "fits":
                    found[name] = {**one, "on": f"{8 * nodes} x {kind}"}
            nodes *= 4 if nodes < 8 else 2
    return found


def torchtitan(binary, root):
    """The functions of its registry of models."""
    return by_smallest_cluster(binary, root, sorted(glob.glob("torchtitan/models/*/config_registry.py", root_dir=root)))


def bridge(binary, root):
    """Recipes of models. Their names say how many GPUs of which kind each is for: llama3_8b_pretrain_2gpu_h100_bf16_config."""
    folder, pattern, found = "src/megatron/bridge/recipes", re.compile(r"_(\d+)gpu_([a-z]*\d+)_"), {}
    clusters = {"h100": ("dgx-h100", 8), "b200": ("dgx-b200", 8), "b300": ("dgx-b300", 8), "gb200": ("gb200-nvl72", 72), "gb300": ("gb300-nvl72", 72)}
    names = {name: pattern.search(name) for name in check(binary, root, [folder], "dgx-h100:1")}
    for gpus, kind in sorted({match.groups() for match in names.values() if match}):
        cluster, per_node = clusters[kind]
        files = sorted({name.split("#")[0] for name, match in names.items() if match and match.groups() == (gpus, kind)})
        for name, one in check(binary, root, files, f"{cluster}:{-(-int(gpus) // per_node)}", int(gpus)).items():
            if names.get(name) and names[name].groups() == (gpus, kind):
                found[name] = {**one, "on": f"{gpus} x {cluster}"}
    return with_more_replicas(binary, root, {name: (int(names[name].group(1)), *clusters[names[name].group(2)]) for name in found}, found)


def with_more_replicas(binary, root, places, found):
    """`places` is {recipe: (GPUs, cluster, GPUs per node)}. The least number that parallel sizes need may be too few for memory."""
    for times in (2, 4, 8, 16):
        again = collections.defaultdict(set)
        for name, (gpus, cluster, per_node) in places.items():
            if found[name]["verdict"] == "does_not_fit":
                again[times * gpus, cluster, per_node].add(name)
        for (gpus, cluster, per_node), names in sorted(again.items()):
            files = sorted({name.split("#")[0] for name in names})
            for name, one in check(binary, root, files, f"{cluster}:{-(-gpus // per_node)}", gpus).items():
                if name in names and one["verdict"] == "fits":
                    found[name] = {**one, "on": f"{gpus} x {cluster}, named for {gpus // times}"}
    return found


PROJECTS = [("nemo_automodel", "NVIDIA-NeMo/Automodel", automodel), ("torchtitan/models", "pytorch/torchtitan", torchtitan),
            ("src/megatron/bridge", "NVIDIA-NeMo/Megatron-Bridge", bridge), ("megatron/core", "NVIDIA/Megatron-LM", megatron)]


def revision(root):
    done = subprocess.run(["git", "-C", root, "rev-parse", "HEAD"], capture_output=True, text=True)
    return f" at {done.stdout.strip()[:12]}" if done.returncode == 0 else ""


def plain(text, most=120):
    text = re.sub(r"\s+", " ", text).replace("|", "\\|")
    return text if len(text) <= most else text[:most - 3] + "..."


def row(name, one):
    size = f"{one['parameters'] / 1e9:.2f} B" if one["parameters"] else ""
    memory = f"{one['peak_bytes'] / 2**30:.1f}" if one["peak_bytes"] else ""
    judged = next((note for note in one["notes"] if "judged with sequences" in note), "")
    return f"| {plain(name)} | {one['on']} | {one['verdict'].replace('_', ' ')} | {size} | {plain(one['layout'])} | {memory} | {plain(one['reason'] or judged)} |"


def section(title, what, root, found):
    judged = {name: one for name, one in found.items() if one["verdict"] != APART and not NO_DECODER.search(name + one["reason"])}
    counts = collections.Counter(one["verdict"] for one in judged.values())
    bad, beyond = len(judged) - counts["fits"], sum(one["verdict"] == APART for one in found.values())
    total = (f"| {title} | {len(judged)} | {' | '.join(str(counts[verdict]) for verdict in VERDICTS)} | "
             f"{bad / max(1, len(judged)):.1%} | {beyond} | {len(found) - len(judged) - beyond} |")
    lines = [f"## {title}{revision(root)}", "", what.strip(), "",
             "| recipe | GPUs | verdict | parameters | layout | GiB of a GPU | |", "| --- | --- | --- | ---: | --- | ---: | --- |"]
    return total, "\n".join(lines + [row(name, one) for name, one in sorted(judged.items())])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin")
    parser.add_argument("checkouts", nargs="+")
    parser.add_argument("-o", "--output", default="reports/results/recipes.md")
    parser.add_argument("--json")
    o = parser.parse_args()
    totals, sections, everything = [], [], {}
    for root in o.checkouts:
        known = next((project for project in PROJECTS if os.path.isdir(os.path.join(root, project[0]))), None)
        if known is None:
            parser.error(f"{root}: no checkout of {', '.join(title for _, title, _ in PROJECTS)}")
        found = known[2](os.path.abspath(o.bin), root)
        everything[known[1]] = found
        total, text = section(known[1], known[2].__doc__, root, found)
        totals.append(total)
        sections.append(text)
    head = ["# Verdicts on the frameworks' own recipes", "",
            "Written by `./scripts/bench recipes CHECKOUT...`. Each recipe is judged by `mpt-plan check` on the GPUs that its owner names; where none are",
            "named, on the smallest cluster of DGX H100, then DGX B200, where it fits. Megatron-Bridge names the least number that a recipe's parallel",
            "sizes need (skills/adding-model-support/recipe-patterns.md): where memory needs more, the page says on how many it fits. Decoders with an",
            "encoder of images or sound, which MPT cannot judge, and what trains no decoder of language are counted apart.", "",
            "| repository | recipes | fit | illegal | too large | not read | not \"fits\" | MPT cannot judge | no decoder's training |",
            "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |", *totals]
    print("\n".join(head[7:]))
    with open(o.output, "w", encoding="utf-8") as file:
        file.write("\n".join(head) + "\n\n" + "\n\n".join(sections) + "\n")
    if o.json:
        with open(o.json, "w", encoding="utf-8") as file:
            json.dump(everything, file, indent=1)


if __name__ == "__main__":
    main()
