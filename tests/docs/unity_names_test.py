# SPDX-License-Identifier: Apache-2.0
"""Names in unnamed namespaces are unique within a target, and hide none of base and core, since unity builds compile a target's sources
together, however many at a time.

Usage: unity_names_test.py SOURCES. Exits with 77, a skip for ctest, where universal-ctags is missing.
"""

import collections
import glob
import json
import os
import re
import shutil
import subprocess
import sys

FOLDERS = ("base", "core", "models", "frameworks", "profiler", "planner", "reports", "runtime")
# Their tests are one target a folder.
TESTED = ("base", "core", "models", "frameworks", "planner", "reports", "runtime/checkpoint")


def target_of(path):
    parts = path.split("/")
    if parts[0] == "planner" and (len(parts) == 2 or parts[1] == "commands"):
        return "mpt-plan"
    if parts[0] == "tests":
        return "/".join(parts[:3 if parts[1] == "runtime" else 2])
    deep = parts[0] in ("profiler", "runtime")
    return "/".join(parts[:3 if "cuda" in parts else 2 if deep else 1])


def types_of(signature):
    """A function's parameters without their names and defaults."""
    parameters = re.sub(r"\s*=[^,)]*", "", signature.strip("()")).split(",")
    return tuple(re.sub(r"\s*\b\w+$", "", parameter.strip()) for parameter in parameters)


def tags_of(files):
    done = subprocess.run(["ctags", "--output-format=json", "--fields=+KSs", "--c++-kinds=fvsceg", "--kinds-c++=+p", "-f", "-", *files], check=True,
                          stdout=subprocess.PIPE, text=True)
    return list(map(json.loads, done.stdout.splitlines()))


def main():
    os.chdir(sys.argv[1])
    if shutil.which("ctags") is None:
        print("SKIPPED: universal-ctags is not installed")
        sys.exit(77)
    files = sorted(name for folder in FOLDERS for name in glob.glob(folder + "/**/*.cpp", recursive=True))
    files += sorted(name for folder in TESTED for name in glob.glob(f"tests/{folder}/**/*_test.cpp", recursive=True))
    headers = [name for folder in ("base", "core") for name in glob.glob(folder + "/**/*.h", recursive=True)]
    shared = {tag["name"] for tag in tags_of(headers) if tag.get("scope") == "mpt"}
    places = collections.defaultdict(set)
    hidden = []
    count = 0
    for tag in tags_of(files):
        if tag["kind"] == "prototype" or not tag.get("scope", "").split("::")[-1].startswith("__anon"):
            continue
        count += 1
        if tag["name"].startswith("TEST"):  # a macro
            continue
        if tag["name"] in shared and not tag["path"].startswith("tests/") and tag["scope"].count("::") > 1:
            hidden.append(f"{tag['name']} in {tag['path']} hides mpt::{tag['name']}")
        types = types_of(tag.get("signature", "")) if tag["kind"] == "function" else ()
        places[target_of(tag["path"]), tag["name"], types].add(tag["path"])
    twice = [f"{name} in {', '.join(sorted(paths))}" for (_, name, _), paths in sorted(places.items()) if len(paths) > 1]
    if twice or hidden or count < 1000:
        sys.exit("\n".join(["names of one target that are there twice, or hide another:", *twice, *hidden, f"{count} names seen"]))
    print(f"{count} names in unnamed namespaces, each once in its target")


main()
