# SPDX-License-Identifier: Apache-2.0
"""The files that describe the project agree with it: one version everywhere, a licence line in every source, in NOTICE every
source of data that the tree holds, and actions of others by digest.

Usage: project_files_test.py SOURCES
"""

import collections
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(sys.argv[1])
FEWEST_RUNS = 20  # from these on NOTICE lists a source by name
SPDX = "SPDX-License-Identifier: Apache-2.0"
problems = []


def text(path):
    return (ROOT / path).read_text()


def found(pattern, path):
    match = re.search(pattern, text(path), re.M)
    return match[1] if match else "none"


def check_version():
    versions = {"CMakeLists.txt": r"^project\(mpt VERSION (\S+)", "base/version.h": r'kVersion = "([^"]+)"',
                "CITATION.cff": r"^version: (\S+)", "CHANGELOG.md": r"^## \[(\d[^\]]*)\]"}
    seen = {path: found(pattern, path) for path, pattern in versions.items()}
    consumer = found(r"find_package\(mpt (\S+)", "examples/plan/CMakeLists.txt")
    if not seen["CMakeLists.txt"].startswith(consumer + "."):
        problems.append(f"examples/plan asks for mpt {consumer}")
    if len(set(seen.values())) > 1 or "none" in seen.values():
        problems.append(f"versions differ: {seen}")
    dates = {path: found(pattern, path) for path, pattern in
             {"CITATION.cff": r'^date-released: "(\S+)"', "CHANGELOG.md": r"^## \[\d[^\]]*\] - (\S+)"}.items()}
    if len(set(dates.values())) > 1:
        problems.append(f"dates of the release differ: {dates}")


def check_licence_lines():
    count = 0
    for folder in ("benchmarks", "core", "models", "planner", "profiler", "python", "reports", "runtime", "tests"):
        for file in sorted((ROOT / folder).rglob("*")):
            written = file.is_relative_to(ROOT / "tests/golden")  # by the programs
            if file.suffix in (".h", ".cpp", ".cu", ".cuh", ".py") and not written:
                count += 1
                if SPDX not in file.read_text()[:200]:
                    problems.append(f"{file.relative_to(ROOT)}: no line '{SPDX}'")
    if count < 500:
        problems.append(f"only {count} sources seen: is the path right?")


def name_of(source):
    """owner/repository or arXiv:number of what a record says of its source."""
    words = source["where"]
    paper = re.match(r"arXiv[: ](\d+\.\d+)", words)
    return f"arXiv:{paper[1]}" if paper else (re.match(r"[\w.-]+/[\w.-]+", words) or re.match(".*", words))[0]


def check_notice():
    notice = text("NOTICE")
    runs = collections.Counter(name_of(json.loads(line)["source"]) for file in sorted((ROOT / "reports/validation/records").glob("*.jsonl"))
                               for line in file.read_text().splitlines())
    if f"{sum(runs.values()):,} training runs" not in notice:
        problems.append(f"NOTICE does not say that there are {sum(runs.values()):,} training runs")
    for name, count in runs.most_common():
        shown = re.escape(name) + r"(?![\w.-])" if len(name) <= 60 else re.escape(name[:60])  # a longer one goes on below
        row = re.search(rf"^ +(\d+)  {shown}", notice, re.M)
        if row and int(row[1]) != count:
            problems.append(f"NOTICE says {row[1]} runs of {name}; there are {count}")
        elif not row and count >= FEWEST_RUNS and not name.startswith("http"):
            problems.append(f"NOTICE does not list {name}, source of {count} runs")
    for table in sorted((ROOT / "profiler/hardware/kernels").glob("*.json")):
        sources = re.findall(r"[\w-]+/[\w-]+(?= \(|\s+configs)", json.loads(table.read_text())["source"])
        if table.stem not in notice or not sources or not all(source in notice for source in sources):
            problems.append(f"NOTICE does not name {table.name} and its sources {sources}")
    for keys in sorted((ROOT / "tests/frameworks/keys").glob("*.txt")):
        repository, version = re.match(r"# (\S+) (\S+):", keys.read_text()).groups()
        if not re.search(rf"{repository} .*{re.escape(version)}", notice):
            problems.append(f"NOTICE does not name {repository} {version}, whose keys are in {keys.name}")


def check_libraries():
    """What CMake looks for stands in NOTICE, and nothing else does. What is linked into the wheel has its licence's words there."""
    section = text("NOTICE").partition("\n6. ")[2].partition("The MIT License:")[0]
    listed = set(re.findall(r"^   ([\w/-]+)(?=,| {2}| \()", section, re.M)) - {"CUDA"}
    names = {"Pcre2": "PCRE2", "Utf8proc": "utf8proc", "nlohmann_json": "nlohmann/json", "Eigen3": "Eigen", "GTest": "GoogleTest", "ZLIB": "zlib", "OneDNN": "oneDNN"}
    wanted = set()
    for file in [ROOT / "CMakeLists.txt", *sorted((ROOT / "runtime").rglob("CMakeLists.txt")), *sorted((ROOT / "planner").rglob("CMakeLists.txt"))]:
        wanted |= {names.get(name, name) for name in re.findall(r"find_package\((\w[\w-]*)", file.read_text())}
    wanted -= {"Threads", "Python3"}
    if listed != wanted:
        problems.append(f"NOTICE lists {sorted(listed)}; CMake looks for {sorted(wanted)}")
    inside = set(re.findall(r"^   (\S+) +marked", section, re.M))
    headers = {"fmt": "fmt/format.h", "nlohmann/json": "nlohmann/json.hpp", "Eigen": "Eigen/Core", "CLI11": "CLI/CLI.hpp", "yaml-cpp": "yaml-cpp/yaml.h"}
    used = set(re.findall(r"[\w-]+/(?:[\w-]+\.h(?:pp)?|Core)\b", "\n".join(re.findall(r"headers[ )][^)]*|headers [^)]*", text("cmake/MptPlannerOnly.cmake")))))
    if {headers.get(name, name) for name in inside} != used:
        problems.append(f"NOTICE marks {sorted(inside)}; the wheel is built from {sorted(used)}")
    for words in ("Permission is hereby granted, free of charge", "Redistributions in binary form must reproduce"):
        if words not in text("NOTICE"):
            problems.append(f"NOTICE has no licence with the words '{words}'")


def check_security():
    version = ".".join(found(r"^project\(mpt VERSION (\S+)", "CMakeLists.txt").split(".")[:2])
    if f"| {version} | yes |" not in text("SECURITY.md"):
        problems.append(f"SECURITY.md does not say that {version} is fixed")
    for keys in sorted((ROOT / "frameworks").glob("*/asked.json")):
        for package in {one["package"] for one in json.loads(keys.read_text())["registries"]}:
            name, version = package.split()
            if not re.search(rf"{re.escape(name.replace('-core', '').replace('megatron', 'Megatron'))}.*{re.escape(version)}", text("NOTICE"), re.I):
                problems.append(f"NOTICE does not name {package} of {keys.relative_to(ROOT)}")


def check_actions():
    """A tag can be moved to other code; a digest cannot."""
    used = 0
    for file in [*sorted((ROOT / ".github/workflows").glob("*.yml")), *sorted((ROOT / "examples").rglob("action.yml"))]:
        for action in re.findall(r"uses: +(?!\./)(.+)", file.read_text()):
            used += 1
            if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+", action):
                problems.append(f"{file.relative_to(ROOT)}: found {action}; expected NAME@DIGEST  # vMAJOR.MINOR.PATCH")
    if used < 10:
        problems.append(f"only {used} actions seen: is the path right?")


check_version()
check_licence_lines()
check_notice()
check_libraries()
check_security()
check_actions()
print("\n".join(problems) or "version, licence lines, NOTICE and actions agree with the tree")
sys.exit(1 if problems else 0)
