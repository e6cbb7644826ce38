# SPDX-License-Identifier: Apache-2.0
"""What mpt-plan says of the recipes of a framework's own repository, each as its owner runs it. Writes a page with a verdict for each recipe,
and totals; never the files.

Usage: recipes.py BIN CHECKOUT... [-o reports/results/recipes.md] [--json FILE]. A CHECKOUT is a work tree of NVIDIA-NeMo/Automodel,
pytorch/torchtitan, NVIDIA-NeMo/Megatron-Bridge, NVIDIA/Megatron-LM, axolotl-ai-cloud/axolotl or hiyouga/LLaMA-Factory.
"""

import argparse
import collections
import glob
import json
import os
import pathlib
import re
import shlex
import subprocess
import tempfile

VERDICTS = ["fits", "illegal", "does_not_fit", "not_read"]
APART = "cannot_judge"
NOT_JUDGED = {"verdict": APART, "parameters": 0, "peak_bytes": 0, "layout": "", "notes": []}
# Recipes that train no language decoder, and recipes that their owner does not run.
NO_DECODER = re.compile(r"MODE: inference|it starts (?!pretrain_gpt)|no language model|/flux/|/wan/|/t5/|the owner's CI leaves it out|do_predict")
# Recipes that their owner's own code refuses, by function, with the place.
REFUSED_BY_OWNER = {
    "qwen35_122b_a10b": "torchtitan/models/common/decoder.py:195", "qwen35_397b_a17b": "torchtitan/models/common/decoder.py:195",
    "glm45_355b_peft_16gpu_h100_bf16_config": "megatron/core/transformer/moe/moe_layer.py:636",
    "glm45_355b_sft_128gpu_h100_bf16_config": "megatron/core/transformer/moe/moe_layer.py:636"}
# Of those that are not read: words of the reason, by column.
WITHOUT = ["which is not known, expected one of", "not known, expected keys that are known"]
NODES = [2**i for i in range(8)]
NEWER = {"dgx-h100": "dgx-b200", "dgx-b200": "dgx-b300"}  # the next kind, with the same number of GPUs in a node


def check(binary, root, files, cluster, gpus=0):
    """The verdicts by recipe, on a cluster."""
    with tempfile.TemporaryDirectory() as scratch:
        told = os.path.join(scratch, "check.json")
        more = ["--gpus", str(gpus)] if gpus else []
        done = subprocess.run([os.path.join(binary, "mpt-plan"), "check", *files, "--cluster", cluster, *more, "--allow-unread", "--json", told],
                              cwd=root, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if not os.path.exists(told):
            raise SystemExit(f"mpt-plan check on {cluster}: {done.stderr.strip()[-400:]}")
        return {one["recipe"]: one for one in json.loads(pathlib.Path(told).read_text(encoding="utf-8"))["recipes"]}


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
    """A YAML text with another value of a nested key such as step_scheduler.local_batch_size."""
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
    places, other = {}, {}
    released = pathlib.Path(root, "tests/ci_tests/configs/llm_pretrain/release_recipes.yml").read_text(encoding="utf-8")
    pretrained = re.findall(r"^  - (\S+)", released, re.MULTILINE)
    with tempfile.TemporaryDirectory() as scratch:
        for path in sorted(glob.glob("examples/llm_finetune/**/*.yaml", root_dir=root, recursive=True) +
                           glob.glob("examples/llm_pretrain/**/*.yaml", root_dir=root, recursive=True)):
            text = pathlib.Path(root, path).read_text(encoding="utf-8") + "\n"
            block = re.search(r"^ci:\n((?:[ #].*\n|\n)*)", text, re.MULTILINE)
            if block is None:
                continue
            said = dict(re.findall(r"^  (\w+): *\"?(\w+)", block.group(1), re.MULTILINE))
            nodes, tag = int(said.get("nodes", 1)), said.get("cluster_tag")
            gpus = nodes * int(said.get("nproc_per_node", 4 if tag == "gb200" else 8))
            issue = "known_issue_id" in said and "allow_failure" not in said  # tests/ci_tests/utils/generate_ci_tests.py: all of it is skipped
            if issue or path.startswith("examples/llm_pretrain") and path.removeprefix("examples/llm_pretrain/") not in pretrained:
                other[path] = {**NOT_JUDGED, "recipe": path, "reason": "the owner's CI leaves it out", "on": f"{gpus} GPUs"}
                continue
            if tag not in (None, "h100", "gb200"):
                other[path] = {**NOT_JUDGED, "recipe": path, "reason": f"it runs on {tag}, which the catalog of clusters lacks", "on": f"{gpus} x {tag}"}
                continue
            places[path] = (f"gb200-nvl72:{-(-gpus // 72)}" if tag == "gb200" else f"dgx-h100:{nodes}", gpus)
            os.makedirs(os.path.join(scratch, os.path.dirname(path)), exist_ok=True)
            pathlib.Path(scratch, path).write_text(as_in_ci(text, block.group(1)), encoding="utf-8")
        return {**grouped(binary, scratch, places), **other}


def megatron(binary, root):
    """Functional tests. Files below tests/test_utils/recipes say on how many nodes of which kind they run."""
    places, folder = {}, "tests/functional_tests/test_cases"
    for path in sorted(glob.glob("tests/test_utils/recipes/*/*.yaml", root_dir=root)):  # gb200 before h100, which is preferred
        text = pathlib.Path(root, path).read_text(encoding="utf-8")
        said = dict(re.findall(r"^  (model|nodes): (\S+)", text, re.MULTILINE))
        nodes, on_racks = int(said.get("nodes", 1)), "gb200" in path.split("/")
        place = ("gb200-nvl72:1", 4 * nodes) if on_racks else (f"dgx-h100:{nodes}", 8 * nodes)
        for name in re.findall(r"test_case: \[([^\],]*)\]", text):
            case = f"{folder}/{said.get('model')}/{name}/model_config.yaml"
            if os.path.exists(os.path.join(root, case)):
                places[case] = on_less(root, case, place)
    return grouped(binary, root, places)


def on_less(root, case, place):
    """The place of a test from its file, in which the first run takes fewer GPUs."""
    text = pathlib.Path(root, case).read_text(encoding="utf-8")
    said = re.search(r"^MODEL_ENV_VARS:\n(?:  +#.*\n)*  MODEL_ARGS:\n(?:  +#.*\n)*    GPUS_PER_NODE: (\d+)", text, re.MULTILINE)
    return (place[0], int(said.group(1))) if said else place


def by_smallest_cluster(binary, root, files):
    """Recipes that name no GPUs: on the smallest cluster where they fit, in its newest kind where a precision asks for that."""
    found = {}
    for kind in ("dgx-h100", *NEWER.values()):
        for nodes in NODES:
            for name, one in check(binary, root, files, f"{kind}:{nodes}").items():
                few = name in found and found[name]["reason"].startswith("it needs ")  # GPUs, so nothing else was judged
                if name not in found or few or found[name]["verdict"] in ("illegal", "does_not_fit") and one["verdict"] == "fits":
                    found[name] = {**one, "on": f"{8 * nodes} x {kind}"}
    return found


def torchtitan(binary, root):
    """The functions of its registry of models."""
    return by_smallest_cluster(binary, root, sorted(glob.glob("torchtitan/models/*/config_registry.py", root_dir=root)))


def tuner(binary, root):
    """Examples of fine-tuning, with the file of accelerate that a recipe's comment starts it with."""
    files = {}
    with tempfile.TemporaryDirectory() as scratch:
        for path in sorted(glob.glob("examples/**/*.y*ml", root_dir=root, recursive=True)):
            text = pathlib.Path(root, path).read_text(encoding="utf-8")
            if not re.search(r"^(sequence_len|cutoff_len):", text, re.MULTILINE):
                continue
            start, files[path] = re.search(r"^# +--config_file (\S+)", text, re.MULTILINE), path
            if start:
                files[path] = os.path.join(scratch, f"{len(files)}.sh")
                pathlib.Path(files[path]).write_text(f"accelerate launch --config_file {start.group(1)} src/train.py {path}\n", encoding="utf-8")
        found = by_smallest_cluster(binary, root, list(files.values()))
        return {path: found[name] for path, name in files.items()}


BRIDGE = "src/megatron/bridge/recipes"
BRIDGE_CLUSTERS = {"h100": ("dgx-h100", 8), "b200": ("dgx-b200", 8), "b300": ("dgx-b300", 8), "gb200": ("gb200-nvl72", 72), "gb300": ("gb300-nvl72", 72)}
# Runs of recipes on the owner's pages and in its scripts: number and kind of GPUs, settings, and the file that describes the run.
BRIDGE_RUNS = {
    "deepseek_v4_flash_pretrain_32gpu_h100_fp8mx_config": (32, "gb200", {}, "examples/models/deepseek_v4/slurm_pretrain.sh"),
    "deepseek_v4_flash_pretrain_32gpu_h100_bf16_muon_config": (32, "gb200", {}, "examples/models/deepseek_v4/slurm_pretrain.sh"),
    "deepseek_v4_flash_sft_32gpu_h100_bf16_config": (32, "gb300", {}, "examples/models/deepseek_v4/README.md"),
    "deepseek_v4_flash_no_mtp_sft_32gpu_h100_bf16_config": (32, "gb300", {}, "examples/models/deepseek_v4/README.md"),
    "nemotron_3_ultra_pretrain_24gpu_h100_bf16_config": (
        384, "h100", {"model.tensor_model_parallel_size": "4", "model.pipeline_model_parallel_size": "12", "model.expert_model_parallel_size": "16",
                      "model.recompute_granularity": "full", "model.recompute_method": "uniform", "model.recompute_num_layers": "1",
                      "model.seq_length": "4096", "dataset.seq_length": "4096", "train.global_batch_size": "128"},
        "examples/models/nemotron/nemotron_3/ultra/slurm_pretrain.sh"),
    "step35_196b_a11b_pretrain_512gpu_h100_bf16_config": (
        64, "h100", {"model.num_layers_in_last_pipeline_stage": "3", "model.context_parallel_size": "1", "model.sequence_parallel": "false",
                     "model.mtp_num_layers": "0", "train.global_batch_size": "1024", "train.micro_batch_size": "1"},
        "examples/models/stepfun/step35/slurm_pretrain.sh"),
}


def settings_of(command):
    """The settings of a command of the owner's train.sh."""
    words, said = shlex.split(command), {}
    for at, word in enumerate(words):
        value = words[at + 1] if at + 1 < len(words) else ""
        if word == "--seq_length":
            said["model.seq_length"] = said["dataset.seq_length"] = value
        elif re.fullmatch(r"--\w+_parallel_size", word):
            said[f"model.{word[2:]}"] = value
        elif word == "--deterministic":
            said["model.deterministic_mode"] = "true"
        elif match := re.fullmatch(r"\+*((?:model|optimizer|train|ddp|mixed_precision|comm_overlap)\.\w+)=(.*)", word):
            said[match.group(1)] = match.group(2)
    return said


def runs_on_cards(root):
    """Runs of the owner's model verification cards that it calls verified, by recipe: GPUs, kind, settings and card. A recipe's own kind comes first."""
    runs = {}
    for path in sorted(glob.glob("examples/model_verification_cards/*/card.yaml", root_dir=root)):
        text = pathlib.Path(root, path).read_text(encoding="utf-8")
        for kind, block in re.findall(r"^    (G?[BH]\d00):\n((?:      .*\n|\n)+)", text, re.MULTILINE):
            command = re.search(r"^      command: >\n((?:        .*\n)+)", block, re.MULTILINE)
            said = re.search(r"--nodes (\d+) --gpus-per-node (\d+)\s+--recipe (\w+)", command.group(1)) if command else None
            if not said or "      status: verified" not in block:
                continue
            nodes, per_node, name = said.groups()
            if name not in runs or f"_{kind.lower()}_" in name and f"_{runs[name][1]}_" not in name:
                runs[name] = (int(nodes) * int(per_node), kind.lower(), settings_of(command.group(1)), path)
    return runs


def literal(value):
    """Python for a value of the owner's command line."""
    words = {"null": "None", "true": "True", "false": "False"}
    if value.lower() in words or re.fullmatch(r"-?[\d.]+(?:e-?\d+)?", value):
        return words.get(value.lower(), value)
    if value.startswith("[") and value.endswith("]"):
        return "[" + ", ".join(literal(one.strip()) for one in value[1:-1].split(",") if one.strip()) + "]"
    return repr(value)


def as_bridge_runs(binary, root, names, runs):
    """Verdicts on the runs of recipes. For each run a file sets the run's settings."""
    found = {}
    with tempfile.TemporaryDirectory() as scratch:
        os.symlink(os.path.abspath(os.path.join(root, "src/megatron")), os.path.join(scratch, "megatron"))
        places = {}
        for name in names:
            path, function = name.split("#")
            gpus, kind, said, _ = runs[function]
            cluster, per_node = BRIDGE_CLUSTERS[kind]
            module = path.removeprefix("src/").removesuffix(".py").replace("/", ".")
            lines = [f"from {module} import {function} as recipe", "", f"def {function}():", "    cfg = recipe()",
                     "    cfg.model.tensor_model_parallel_size = cfg.model.tensor_model_parallel_size"]
            lines += [f"    cfg.{key} = {literal(value)}" for key, value in said.items()]
            pathlib.Path(scratch, f"{function}.py").write_text("\n".join(lines + ["    return cfg", ""]), encoding="utf-8")
            places[f"{function}.py"] = (f"{cluster}:{-(-gpus // per_node)}", gpus)
        for one in grouped(binary, scratch, places).values():
            function = one["recipe"].split("#")[1]
            found[function] = {**one, "on": f"{one['on']}, as in {os.path.relpath(runs[function][3], 'examples')}"}
    return {name: found[name.split("#")[1]] for name in names}


def bridge(binary, root):
    """Recipes of models. Their names say how many GPUs of which kind each is for: llama3_8b_pretrain_2gpu_h100_bf16_config. Runs of the owner's
    verification cards and scripts come first, with what they set; a recipe in a precision that its kind lacks is judged on the next kind."""
    pattern, found = re.compile(r"_(\d+)gpu_([a-z]*\d+)_"), {}
    runs = {**runs_on_cards(root), **BRIDGE_RUNS}
    for *_, source in BRIDGE_RUNS.values():
        if not os.path.exists(os.path.join(root, source)):
            raise SystemExit(f"{root}: no {source}, which a run of a recipe is taken from")
    names = {name: match for name in check(binary, root, [BRIDGE], "dgx-h100:1") if (match := pattern.search(name))}
    places = {name: (int(match.group(1)), *BRIDGE_CLUSTERS[match.group(2)]) for name, match in names.items() if name.split("#")[1] not in runs}
    for gpus, cluster, per_node in sorted(set(places.values())):
        files = sorted({name.split("#")[0] for name, place in places.items() if place == (gpus, cluster, per_node)})
        for kind in (cluster, NEWER.get(cluster)):
            for name, one in check(binary, root, files, f"{kind}:{-(-gpus // per_node)}", gpus).items() if kind else ():
                if places.get(name) == (gpus, cluster, per_node) and ("expected a precision that" in found.get(name, one)["reason"] or name not in found):
                    found[name] = {**one, "on": f"{gpus} x {kind}"}
    found.update(as_bridge_runs(binary, root, sorted(set(names) - set(places)), runs))
    return with_more_replicas(binary, root, places, found)


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
                    found[name] = {**one, "on": f"{gpus} x {cluster}, {NAMED}{gpus // times}"}
    return found


NAMED = "named for "  # fewer GPUs, which their memory does not allow
PROJECTS = [("nemo_automodel", "NVIDIA-NeMo/Automodel", automodel), ("torchtitan/models", "pytorch/torchtitan", torchtitan),
            ("src/axolotl", "axolotl-ai-cloud/axolotl", tuner), ("src/llamafactory", "hiyouga/LLaMA-Factory", tuner),
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
    said = one["reason"] or next((note for note in one["notes"] if "judged with sequences" in note), "")
    if one["verdict"] == "illegal" and name.split("#")[-1] in REFUSED_BY_OWNER:
        said = f"{REFUSED_BY_OWNER[name.split('#')[-1]]} refuses it: {said}"
    return f"| {plain(name)} | {one['on']} | {one['verdict'].replace('_', ' ')} | {size} | {plain(one['layout'])} | {memory} | {plain(said)} |"


def section(title, what, root, found):
    trained = {name: one for name, one in found.items() if not NO_DECODER.search(name + one["reason"])}
    judged = {name: one for name, one in trained.items() if one["verdict"] != APART}
    counts = collections.Counter(one["verdict"] for one in judged.values())
    bad = len(judged) - counts["fits"]
    more = sum(one["verdict"] == "fits" and NAMED in one["on"] for one in judged.values())
    unknown = [sum(one["verdict"] == "not_read" and why in one["reason"] for one in judged.values()) for why in WITHOUT]
    numbers = [len(judged), counts["fits"], more, *(counts[verdict] for verdict in VERDICTS[1:]), *unknown]
    total = (f"| {title} | {' | '.join(map(str, numbers))} | {bad / max(1, len(judged)):.1%} | {len(trained) - len(judged)} | {len(found) - len(trained)} |")
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
            "named, on the smallest cluster of DGX H100, then DGX B200, then DGX B300, where it fits. Megatron-Bridge names the least number that a",
            "recipe's parallel sizes need (skills/adding-model-support/recipe-patterns.md): where memory needs more, a column counts those that fit on",
            "more. Recipes that MPT cannot judge, such as decoders with an encoder of images, are counted apart. So are those that train no decoder",
            "of language, or that the owner does not run. A model without known sizes needs its `config.json`, which no checkout has.",
            "A key that changes memory, weights or the loss, and that MPT does not price, is refused by its name.",
            "Where the owner's own code refuses a recipe, its row names the line.", "",
            "| repository | recipes | fit | of these on more GPUs than named | illegal | too large | not read | of these, a model without known sizes | a key that is not priced | not \"fits\" | MPT cannot judge | no decoder's training, or not run |",
            "| --- |" + 11 * " ---: |", *totals]
    print("\n".join(head[9:]))
    pathlib.Path(o.output).write_text("\n".join(head) + "\n\n" + "\n\n".join(sections) + "\n", encoding="utf-8")
    if o.json:
        pathlib.Path(o.json).write_text(json.dumps(everything, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
