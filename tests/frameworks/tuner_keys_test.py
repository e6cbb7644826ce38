# SPDX-License-Identifier: Apache-2.0
"""frameworks/transformers/tuner_keys.json has each key of a tool's released package once, and no other; its defaults are the package's;
and each key without effect stands in a line of the tool. Some of these lines are drawn and printed, for somebody to read.

Usage: tuner_keys_test.py [FOLDER [SEED]]. FOLDER keeps the wheels (default: build/wheels); exit code 77 where one is missing and the
Python index cannot be reached. Nothing of a package is run: its dataclasses and pydantic models are read as text.
"""
import ast
import json
import pathlib
import random
import re
import subprocess
import sys
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Of each package: files, and the classes in them whose fields are keys. axolotl's plugins name their classes themselves.
CLASSES = {
    "llamafactory": [(r"llamafactory/hparams/\w+_args\.py", "ModelArguments DataArguments TrainingArguments FinetuningArguments GeneratingArguments"),
                     (r"llamafactory/v1/config/\w+\.py", "ModelArguments DataArguments TrainingArguments SampleArguments")],
    "axolotl": [(r"axolotl/(utils/schemas/[\w/]+|integrations/\w+/args)\.py", "AxolotlInputConfig")],
    "trl": [(r"trl/trainer/(sft|base|model)_config\.py", "SFTConfig ModelConfig"), (r"trl/scripts/utils\.py", "ScriptArguments DatasetMixtureConfig")],
    "transformers": [(r"transformers/training_args(_seq2seq)?\.py", "Seq2SeqTrainingArguments")],
}
# Programs beside the training say nothing about what a key does; definitions say it last.
ASIDE, DEFINED = re.compile("/webui/|config_options|transformers/(models/|modelcard)"), re.compile("/schemas/|/hparams/|/v1/config/|/args.py")
LINELESS = ("unused", "refused by the tool", "section")  # reasons of keys that need no line
OLDER = {"fsdp", "fsdp_config.forward_prefetch", "fsdp_config.sharding_strategy"}  # keys of older releases that recipes still have
# Words of accelerate launch and torchrun, which stand beside a tool's own.
LAUNCHERS = set("accelerate_config config config_file fsdp_activation_checkpointing fsdp_cpu_ram_efficient_loading fsdp_offload_params mixed_precision "
                "fsdp_reshard_after_forward fsdp_sharding_strategy machine_rank main_process_ip main_process_port nnodes num_machines nproc_per_node num_gpus num_processes use_fsdp".split())


def wheel(package, folder):
    name, version = package.split()
    if not list(folder.glob(f"{name}-{version}-*.whl")):
        got = subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--ignore-requires-python", "--only-binary=:all:",
                              "--dest", str(folder), f"{name}=={version}"], capture_output=True, text=True, check=False)
        if got.returncode != 0:
            print(f"skipped: {package} cannot be downloaded: {got.stderr.strip()[-200:]}")
            sys.exit(77)
    archive = zipfile.ZipFile(next(folder.glob(f"{name}-{version}-*.whl")))
    return {path: archive.read(path).decode() for path in sorted(archive.namelist()) if path.endswith(".py")}


def constant(node):  # ... where it is not written out
    if node is None or any(isinstance(part, (ast.Name, ast.Attribute, ast.Call, ast.Lambda)) for part in ast.walk(node)):
        return ...
    return eval(compile(ast.Expression(node), "default", "eval"), {"__builtins__": {}})  # only numbers, text and lists are left


def models_in(annotation, classes):
    """Classes whose fields stand under a key; lists and dictionaries of them have no keys of their own."""
    if isinstance(annotation, ast.Name):
        return [annotation.id] if annotation.id in classes else []
    if isinstance(annotation, ast.Call) or isinstance(annotation, ast.Subscript) and ast.unparse(annotation).lower().startswith(("list[", "dict[")):
        return []
    return [name for child in ast.iter_child_nodes(annotation) for name in models_in(child, classes)]


def fields(name, classes, nested=True):
    """{key: default} of a class and those that it inherits from; "section.key" one level below."""
    bases = [ast.unparse(base) for base in reversed(classes[name].bases)]
    found = {key: value for base in bases if base in classes for key, value in fields(base, classes, nested).items()}
    for item in (item for item in classes[name].body if isinstance(item, ast.AnnAssign) and "ClassVar" not in ast.unparse(item.annotation)):
        made = {word.arg: word.value for word in item.value.keywords} if isinstance(item.value, ast.Call) else {"default": item.value}
        keys = [item.target.id, *(made[word].value for word in made if word == "alias")]
        for key in keys if "init" not in made else []:  # those the program sets itself
            found[key] = constant(made["default"] if "default" in made else next(iter(getattr(item.value, "args", [])), None))
            for model in models_in(item.annotation, classes) if nested else []:
                found.update((f"{key}.{part}", value) for part, value in fields(model, classes, False).items())
    return found


def keys_of(package, sources):
    asked = re.compile(r'def get_input_args\(self\)(?:(?!\n    def ).)*?return "[\w.]+\.(\w+)"', re.S)
    plugins, found = [name for text in sources.values() for name in asked.findall(text)], {}
    for pattern, roots in CLASSES[package.split()[0]]:
        files = [text for path, text in sources.items() if re.fullmatch(pattern, path)]
        classes = {node.name: node for text in files for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ClassDef)}
        for root in roots.split() + plugins:
            for key, value in fields(root, classes).items():
                found.setdefault(key, []).append(value)
    return found


def line_of(key, sources):
    """The first line that takes the key's value, or that takes all keys with its first word."""
    section, _, word = key.rpartition(".")
    ways = [rf"\b{section}\w*\.{word}\b"] * bool(section) + [rf"(?:args|cfg|data)\.{word}\b|args\[\"{word}\"\]", rf"[\"']{word}[\"']",
            rf"(?:self|config)\.{word}\b", rf"\.{word}\b|\b{word}=", rf"startswith\(\"{word.split('_')[0]}_\"\)"]
    for way in ways:
        for path, text in sources:
            for found in re.finditer(way, text) if word in text or way == ways[-1] else []:
                line = text.splitlines()[(above := text.count("\n", 0, found.start()))].strip()
                if not line.startswith((">>>", "#")):
                    return f"{path}:{above + 1}: {line[:110]}"
    return None


def judge(tool, asked, sources):  # problems of its lists, and lines of its keys without effect
    changes = {key: value for keys in tool["changes"].values() for key, value in keys.items()}
    none = [(reason, key) for reason, keys in tool["none"].items() for key in keys]
    listed = tool["read"] + [key for _, key in none] + [key for keys in tool["changes"].values() for key in keys]
    known = {key: next((value for value in asked.get(key, []) if value is not ...), changes[key]) for key in changes}
    used = sorted(((path, text) for path, text in sources.items() if not ASIDE.search(path)), key=lambda row: bool(DEFINED.search(row[0])))
    lines = {key: reason in LINELESS or key in LAUNCHERS or key in tool.get("unreleased", []) or line_of(key, used) for reason, key in none}
    plugins = tuple(tool.get("closed", []))  # settings of plugins, which no class of the arguments has
    unreleased = set(tool.get("unreleased", []))  # keys of the repository that "source" names
    print(f"{tool['tool']}: {len(tool['read'])} read, {len(none)} without effect, {len(changes)} change the answer")
    problems = {"is not classified": set(asked) - set(listed), f"is no key of {tool['package']}": {key for key in set(listed) - set(asked) - OLDER - LAUNCHERS - unreleased
                                                     if not key.startswith(plugins) or line_of(key, used) is None},
                "stands there twice": {key for key in listed if listed.count(key) > 1},
                "takes other values, but has no effect": set(tool["takes"]) - set(tool["read"]) - set(changes),
                "sets something, but is not listed": {*tool.get("sets", {})} - set(tool["read"]) - set(changes),
                "has another default": {key for key, value in changes.items() if known[key] != value},
                "has no effect, and no line of the tool that takes it": {key for key in lines if lines[key] is None}}
    return ([f"{key} {problem}" for problem, keys in problems.items() for key in sorted(keys)],
            [f"{key} ({reason}): {lines[key]}" for reason, key in none if reason not in LINELESS])


def main():
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build/wheels"
    tools = {tool["tool"]: tool for tool in json.loads((ROOT / "frameworks/transformers/tuner_keys.json").read_text())["tools"] if "package" in tool}
    wheels = {name: wheel(tool["package"], folder) for name, tool in tools.items()}
    keys = {name: keys_of(tool["package"], wheels[name]) for name, tool in tools.items()}
    problems, idle = [], []
    for name, tool in tools.items():
        own = {key: value for key, value in keys[name].items() if not any(key in keys[other] for other in tool["inherits"])}
        for rows, new in zip((problems, idle), judge(tool, own, wheels[name])):
            rows += [f"{name}: {row}" for row in new]
    print("\n".join(random.Random(sys.argv[2] if len(sys.argv) > 2 else "1").sample(idle, 40) + problems))
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
