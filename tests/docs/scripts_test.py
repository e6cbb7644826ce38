# SPDX-License-Identifier: Apache-2.0
"""The maintainers' scripts that the documents name do what they say, on small inputs. The others have tests of their own:
demo and gpu-check in commands_test.py, draw_architecture by itself, package in tests/install/.

Usage: scripts_test.py SOURCES BIN
"""

import importlib.machinery
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

SOURCES, BIN = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
KEYS = os.path.join(SOURCES, "tests/frameworks/keys")
# What the readers of all frameworks find something in.
FRAMEWORK_SOURCE = """
parser.add_argument('--a-flag', type=int)
A_CONSTANT = "a_constant"
class SectionConfig:
    key: int = 0
class JobConfig:
    section: SectionConfig = None
    plain: int = Field(alias="an_alias")
"""
FOUND = {"deepspeed": ["a_constant", "an_alias", "key", "plain", "section"]}
FIELDS = ["key", "plain", "section"]
BENCHMARKS = {
    "commands": ("load before", "| ratio | wall s |", "| Llama 3 70B on 64 H100 | ", "| estimate of a layout, no search | ", "x |"),
    "predict": ("mean absolute error", "rounds apart"),
    "overlap": ("won, predicted", "| 0 | "),
    "transports": ("all-reduce of 2 ranks", "64 kB   threads", "64 MB   sockets"),
    "step": ("PyTorch ", "BLAS", "2 cores", "of a product's speed", "x of MPT's time ("),
}


def run(*command, folder=None, expected=0, environment=None):
    done = subprocess.run([str(word) for word in command], cwd=folder, env={**os.environ, **(environment or {})}, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    if done.returncode != expected:
        sys.exit(f"{command}: exit code {done.returncode}\n{done.stdout[-3000:]}")
    return done.stdout


def check(condition, what):
    if not condition:
        sys.exit(what)


def check_framework_keys(scratch):
    """Clones as the recorded lists name them, with known flags and fields inside."""
    headers = {}
    for name in os.listdir(KEYS):
        with open(os.path.join(KEYS, name)) as file:
            headers[name] = re.match(r"# (\S+) (\S+): (.*)\n", file.readline()).groups()
    clones, recorded = os.path.join(scratch, "clones"), os.path.join(scratch, "keys")
    os.makedirs(recorded)
    git = ("git", "-c", "user.name=test", "-c", "user.email=test@localhost")
    for repository, version in sorted({header[:2] for header in headers.values()}):
        clone = os.path.join(clones, repository)
        run("git", "init", "-q", clone)
        for _, _, files in (header for header in headers.values() if header[:2] == (repository, version)):
            for path in (os.path.join(clone, file) for file in files.split(", ")):
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "w") as file:
                    file.write(FRAMEWORK_SOURCE)
        run("git", "add", "-A", folder=clone)
        run(*git, "commit", "-q", "--allow-empty", "-m", version, folder=clone)
        run("git", "tag", "-f", version, folder=clone)
    script = os.path.join(SOURCES, "scripts/record_framework_keys")
    run(script, clones, recorded)
    check(sorted(os.listdir(recorded)) == sorted(os.listdir(KEYS)), "record_framework_keys writes other lists than the tests read")
    for name in headers:
        with open(os.path.join(recorded, name)) as file:
            keys = file.read().split("\n")[1:-1]
        check(keys == FOUND.get(name.removesuffix(".txt"), FIELDS), f"record_framework_keys found {keys} for {name}")
    shutil.rmtree(os.path.join(clones, "DeepSpeed"))
    check("no deepspeed/runtime/constants.py" in run(script, clones, recorded, expected=1), "a missing clone is not named")


def check_bounded_install(scratch):
    """Frameworks that take too long to install are skipped with a reason, not a failure."""
    printed = run(os.path.join(SOURCES, "scripts/test"), "frameworks",
                  environment={"MPT_INSTALL_SECONDS": "0.01", "MPT_FRAMEWORKS": os.path.join(scratch, "frameworks"), "MPT_PROGRAMS": BIN})
    check("test frameworks: skipped, because installing took over 0.01 s" in printed, printed)


def load(path):
    with open(path) as file:
        return json.load(file)


def check_kernel_tables(scratch):
    """Times of a made-up GPU with known rates and one outlier."""
    location = importlib.util.spec_from_loader("tables", importlib.machinery.SourceFileLoader(
        "tables", os.path.join(SOURCES, "scripts/build_kernel_tables")))
    tables = importlib.util.module_from_spec(location)
    location.loader.exec_module(tables)
    folder, output = os.path.join(scratch, "kernels/made-up-gpu"), os.path.join(scratch, "tables")
    os.makedirs(folder)
    os.makedirs(output)
    outlier = (1024, 2048, 2048)
    with open(os.path.join(folder, "gemm.csv"), "w") as file:
        file.write("dtype,m,n,k,time_us\n")
        for shape in ((m, n, k) for m in tables.M for n in tables.NK for k in tables.NK):
            file.write("bf16,{},{},{},{}\n".format(*shape, 2e-8 * shape[0] * shape[1] * shape[2] * (50 if shape == outlier else 1)))
    with open(os.path.join(folder, "attention_forward.csv"), "w") as file:
        file.write("batch,seq,heads,kv_heads,head_dim,time_us\n")
        for sequence in (512, 1024):  # 200 TFLOP/s
            file.write(f"1,{sequence},8,8,128,{2 * 8 * sequence * (sequence + 1) * 128 / 200e6}\n")
    with open(os.path.join(folder, "collective.csv"), "w") as file:
        file.write("op,gpus,message_bytes,time_us\nalltoall,8,1024,12.5\nalltoall,8,2048,13\n")
    run(os.path.join(SOURCES, "scripts/build_kernel_tables"), os.path.dirname(folder), output)
    made = load(os.path.join(output, "made-up-gpu.json"))
    products = made["gemm"]["bf16"]

    def time_of(m, n, k):
        row = products["m"].index(m) * len(products["n"]) + products["n"].index(n)
        return products["time_us"][row * len(products["k"]) + products["k"].index(k)]

    check(time_of(1024, 4096, 8192) == float(f"{2e-8 * 1024 * 4096 * 8192:.4g}"), "a product's time is not as measured")
    padded = 2e-8 * 1024 * 2048 * 2560
    check(time_of(*outlier) == float(f"{padded:.4g}"), f"an outlier stays: {time_of(*outlier)}, padded {padded}")
    check(made["attention_forward"] == [{"head_dim": 128, "sequence": [512, 1024], "heads": [8], "tflop_per_s": [200, 200]}],
          f"attention: {made['attention_forward']}")
    check(made["collective"] == {"all_to_all": {"ranks": [8], "bytes": [1024, 2048], "time_us": [12.5, 13]}},
          f"collectives: {made['collective']}")


def write_lines(path, records):
    with open(path, "w") as file:
        file.writelines(json.dumps(record) + "\n" for record in records)


MLP = {"ffn_hidden": 100, "gated": True, "activation": "silu"}


def layers_of(parts):
    """Four equal layers of ten heads."""
    kind = {"attention": {"heads": 10, "kv_heads": 10, "head_dim": 100}, **parts}
    return {"kinds": {"layer": kind}, "order": [{"repeat": 4, "of": ["layer"]}]}


def check_fixed_step_time(scratch):
    """Micro-batches of 2 s and 8 s beside them on 8 and on 32 GPUs; a stage's fp32 gradients are 4 GB."""
    path = os.path.join(scratch, "pairs.jsonl")
    model = {"name": "wide", "hidden": 1000, "vocab": 8000, "layers": layers_of({"mlp": {**MLP, "ffn_hidden": 164000}})}

    def run_on(gpus, **changes):
        layout = {"tensor": 4, "pipeline": 2, "data": gpus // 8, "micro_batch": 1}
        request = {"model": model, "global_batch": 32, "seq": 512, "layout": layout, **changes}
        return {"request": request, "observed": {"seconds": 2.0 * (32 * 8 / gpus + 1) + 8.0}}

    write_lines(path, [run_on(8), run_on(32), run_on(16, execution=["graphs=true"]), {**run_on(16), "observed": {"out_of_memory": True}}])
    printed = run("python3", os.path.join(SOURCES, "benchmarks/fixed_step_time.py"), path)
    check("fixed  8.00 s,   8.0 GB from a node,   1.0 GB/s" in printed, printed)
    check("1 pairs on 4 times the GPUs: median 1.0 GB/s" in printed, printed)


def check_expert_layers(scratch):
    """Two stages of two layers each, ten micro-batches: 11 slots; dense models and runs with graphs do not count."""
    path = os.path.join(scratch, "experts.jsonl")
    request = {"framework": "megatron-core", "model": {"layers": layers_of({"moe": {"experts": 8, "expert": MLP}})}, "global_batch": 40,
               "layout": {"pipeline": 2, "chunks": 1, "data": 4, "micro_batch": 1}}
    plain = {"id": "plain", "facts": {"hardware.gpu": "h100-sxm-80gb"}, "request": request, "observed": {"seconds": 0.22}}
    others = [{**plain, "id": "graphed", "request": {**request, "execution": ["graphs=true"]}},
              {**plain, "id": "dense", "request": {**request, "model": {"layers": layers_of({"mlp": MLP})}}},
              {**plain, "id": "open", "unknown": {"chunks": [1, 2]}},
              {**plain, "id": "timeless", "observed": {}}, {**plain, "id": "longer", "observed": {"seconds": 0.44}}]
    write_lines(path, [*others, plain])
    printed = run("python3", os.path.join(SOURCES, "benchmarks/expert_layers.py"), path)
    check(printed.split() == ["10.00", "ms", "plain", "20.00", "ms", "longer", "2", "runs"], printed)


def check_choice():
    """Layouts of 10, 11 and 14 s of which the second is predicted fastest, and one run twice; one more ran out of memory."""
    sys.path.insert(0, os.path.join(SOURCES, "benchmarks"))
    import choice
    common = {"model": "m", "cluster": "c:1", "global_batch": 8}
    times = {"p": (1, 10.0, 9.0), "q": (2, 11.0, 8.0), "r": (4, 13.0, 12.0), "s": (4, 15.0, 12.0)}
    records = {i: {"family": "a", "request": {**common, "layout": {"tensor": tp, "precision": "bf16"}}} for i, (tp, _, _) in times.items()}
    ran = [{"id": i, "skipped": None, "measured_iter_time_s": measured, "predicted_iter_time_s": predicted}
           for i, (_, measured, predicted) in times.items()]
    failures = {"t": records["p"]}
    for seconds, fits, cost in ((7.0, True, "1 of 1"), (7.0, False, "0 of 1"), (8.5, True, "0 of 1")):
        failed = [{"id": "t", "skipped": None, "predicted_iter_time_s": seconds, "fits": fits}]
        printed = choice.table(records, ran, failures, failed)
        check(f"| a | 1 | 0 | 10.0 % | 10.0 % | 10.0 % | {cost} |" in printed, printed)
    ranges = [{**prediction, "range_s": [1.0, 20.0]} for prediction in ran]
    check(not choice.sets_of(records, ranges, failures, []), "a prediction that is a range is a choice")
    check(not choice.sets_of(records, ran[:2], failures, []), "two layouts are a set")


def check_blas():
    """Made-up lists of mapped files."""
    sys.path.insert(0, os.path.join(SOURCES, "benchmarks"))
    from blas_in_use import blas_of
    libraries = "/usr/lib/x86_64-linux-gnu"
    shell = f"{libraries}/openblas-pthread/libblas.so.3"
    mkl = "  - Intel(R) oneAPI Math Kernel Library Version 2024.2-Product Build 20240605\n  - Build settings: BLAS_INFO=mkl,"
    for paths, configuration, expected in (
            ([f"{libraries}/blas/libblas.so.3.11.0"], "BLAS_INFO=generic", "reference BLAS (libblas.so.3.11.0)"),
            ([shell, f"{libraries}/openblas-pthread/libopenblasp-r0.3.21.so"], "", "OpenBLAS 0.3.21, a core"),
            ([f"{libraries}/libmkl_rt.so.2"], "", "libmkl_rt.so.2"), (["/bin/python3"], mkl, "MKL 2024.2, part of PyTorch"),
            ([], "BLAS_INFO=accelerate", "accelerate, part of PyTorch"), ([], "", "unknown BLAS")):
        named = blas_of(paths, configuration, lambda path: ", a core")
        check(named == expected, f"{paths}: {named!r}, not {expected!r}")


# A program that takes 2 s for a step, at 1 FLOP/s of 4, and PyTorches that say what SAYS has.
FAKE_STEPS = """#!/usr/bin/env python3
import sys
print(2.0, flush=True)
for line in sys.stdin:
    print(4.0 if line == "0\\n" else 2.0, flush=True)
"""
FAKE_TORCH = """#!/usr/bin/env python3
import json, os, sys
says = {says}
if says is None:
    sys.exit("no module named torch")
if "OPENBLAS_CORETYPE" in os.environ:
    says["product_error"] = 1e-6
print(json.dumps(says), flush=True)
for count, _ in enumerate(sys.stdin):
    print(3.0 + count, flush=True)
"""


def check_step(scratch):
    """Peers that compute rightly, only with other kernels, only wrongly, or not at all."""
    def script(name, text):
        path = os.path.join(scratch, name)
        with open(path, "w") as file:
            file.write(text)
        os.chmod(path, 0o755)
        return path

    right = {"torch": "2.15.0", "blas": "MKL 2024.2, part of PyTorch", "product_error": 1e-6}
    slow = {"torch": "1.13.0", "blas": "reference BLAS (libblas.so.3)", "product_error": 1e-6}
    wrong = {"torch": "1.12.0", "blas": "OpenBLAS 0.3.21", "product_error": 0.5}
    program = script("fake-steps", FAKE_STEPS)
    peers = {name: script(f"fake-{name}", FAKE_TORCH.format(says=says))
             for name, says in (("right", right), ("slow", slow), ("wrong", wrong), ("none", None))}
    command = ["python3", os.path.join(SOURCES, "benchmarks/step_vs_torch.py"), program, "--quick"]
    without = {name: value for name, value in os.environ.items() if not name.startswith("OPENBLAS")}

    def measured(*names, environment, expected=0):
        words = [*command, *(word for name in names for word in ("--python", peers[name]))]
        done = subprocess.run(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        check(done.returncode == expected, f"{words}: exit code {done.returncode}\n{done.stdout}")
        return done.stdout

    page = os.path.join(scratch, "step.md")
    command += ["--page", page]
    printed = measured("right", "slow", "wrong", "none", environment=without)
    # Of a peer's steps of 3, 4, 5 and 6 s the first two warm up.
    for line in ("PyTorch 2.15.0, compiled: MKL 2024.2, part of PyTorch\n", "a ratio to it says nothing of MPT",
                 "OpenBLAS 0.3.21 computes products wrongly, off by 0.5\n", "fake-none: no module named torch\n",
                 "2000.0 ms   25.0% of a product's speed", "5500.0 ms    2.75x of MPT's time (2.50 to 3.00)"):
        check(line in printed, f"no {line!r} in\n{printed}")
    check("1.13.0, compiled" not in printed and printed.count("2.75x") == 4 * 3, printed)
    with open(page) as file:
        text = file.read()
    for line in ("The fastest PyTorch here takes 2.75 to 2.75 times as long for a step as MPT in fp32, and 2.75 to 2.75 times", "\nPyTorch 2.15.0: MKL 2024.2, part of PyTorch\n",
                 "\nfp32, 2 layers, hidden 64, sequence 64, batch 4, 2 cores\n", "\nbf16, 2 layers,", "2 rounds."):
        check(line in text, f"no {line!r} in\n{text}")
    printed = measured("wrong", environment={**without, "OPENBLAS_CORETYPE": "Haswell"})
    check("computes products wrongly" in printed and "PyTorch 1.12.0: OpenBLAS 0.3.21\n" in printed, printed)
    printed = measured("none", environment=without, expected=3)
    check("no PyTorch to compare with" in printed, printed)


def check_subjects(scratch):
    path = os.path.join(scratch, "message")
    for message, said in (("Refuse control characters in names\n\nThey became commands.\n# a comment\n", None), ("Merge branch 'x'\n", None),
                          ("x" * 72 + "\n", None), ("x" * 73 + "\n", "has 73 characters"), ("Refuse names.\n", "ends in a period"),
                          ("# only a comment\n", "is empty"), ("Refuse names\nand more\n", "no empty line")):
        with open(path, "w") as file:
            file.write(message)
        printed = run(os.path.join(SOURCES, "scripts/check-subject"), path, expected=1 if said else 0)
        check(printed == "" if said is None else said in printed, f"{message!r}: {printed}")


def check_release(scratch):
    """A release of a repository with the project's own files: it has version, date and notes, and nothing is committed."""
    tree = os.path.join(scratch, "release")
    for folder in ("base", "scripts"):
        os.makedirs(os.path.join(tree, folder))
    shutil.copy(os.path.join(SOURCES, "scripts/release"), os.path.join(tree, "scripts"))
    files = {".gitignore": "build/\n", "CMakeLists.txt": "project(mpt VERSION 1.9.3 LANGUAGES CXX)\n",
             "base/version.h": 'inline constexpr const char* kVersion = "1.9.3";\n',
             "CITATION.cff": 'version: 1.9.3\ndate-released: "2026-01-02"\n',
             "CHANGELOG.md": "# Changelog\n\n## [Unreleased]\n\n- New.\n\n## [1.9.3] - 2026-01-02\n\n- Old.\n"}
    for name, text in files.items():
        with open(os.path.join(tree, name), "w") as file:
            file.write(text)
    git = ["git", "-c", "user.name=n", "-c", "user.email=e@example.org"]
    run(*git, "init", "--quiet", folder=tree)
    run(*git, "add", "--all", folder=tree)
    run(*git, "commit", "--quiet", "-m", "Begin", folder=tree)
    bare = ["--without", "wheel", "--without", "package", "--without", "page"]

    def release(*words, expected=0):
        return run("./scripts/release", *words, *bare, folder=tree, expected=expected)

    for words, said in (([], "expected release VERSION"), (["1.9"], "'1.9'"), (["1.9.3"], "does not come after 1.9.3"), (["1.10"], "'1.10'"),
                        (["1.2.10"], "does not come after"), (["1.10.0", "--without", "tests"], "'--without tests")):
        printed = release(*words, expected=2)
        check(said in printed, f"release {words}: {printed}")
    check("git tag -s v1.10.0" in release("1.10.0"), "release does not say how it ends")
    texts = {}
    for name in [*files, "build/release-1.10.0/notes.md", "build/release-1.10.0/SHA256SUMS"]:
        with open(os.path.join(tree, name)) as file:
            texts[name] = file.read()
    check("VERSION 1.10.0 LANGUAGES" in texts["CMakeLists.txt"] and "version: 1.10.0\n" in texts["CITATION.cff"] and
          'kVersion = "1.10.0"' in texts["base/version.h"], f"versions: {texts}")
    check(re.search(r"## \[Unreleased\]\n\n## \[1\.10\.0\] - \d{4}-\d\d-\d\d\n\n- New\.\n\n## \[1\.9\.3\]", texts["CHANGELOG.md"]), texts["CHANGELOG.md"])
    check(texts["build/release-1.10.0/notes.md"] == "- New.\n\n" and "notes.md" in texts["build/release-1.10.0/SHA256SUMS"], f"{texts}")
    check("differ from the last commit" in release("1.11.0", expected=2), "a release of files that are not committed")
    run(*git, "commit", "--quiet", "--all", "-m", "Release 1.10.0", folder=tree)
    check("nothing under [Unreleased]" in release("1.11.0", expected=2), "a release without notes")


TIDY_PROJECT = {
    "CMakeLists.txt": "cmake_minimum_required(VERSION 3.25)\nproject(p CXX)\nset(CMAKE_EXPORT_COMPILE_COMMANDS ON)\n"
                      "add_compile_options(-Wno-restrict)\ninclude_directories(${CMAKE_SOURCE_DIR})\nadd_library(p a.cpp b.cpp)\n",
    "CMakePresets.json": json.dumps({"version": 6, "configurePresets": [
        {"name": "tidy", "generator": "Ninja", "binaryDir": "${sourceDir}/build/tidy"}]}),
    ".gitignore": "build/\n",
    "a.h": "#pragma once\ninline int a() { return 1; }\n",
    "a.cpp": '#include "a.h"\nnamespace { int local() { return a(); } }\nint use_a() { return local(); }\n',
    "b.cpp": "int b(long n) { return sizeof(n) == 8 ? 1 : 1; }\n",
}


def check_tidy(scratch):
    """A project with one finding in a file that has not changed; then in a source, in a header, and in a file of its own."""
    if shutil.which("clang-tidy") is None:
        return print("SKIPPED tidy: no clang-tidy")
    folder = os.path.join(scratch, "tidy")
    os.makedirs(os.path.join(folder, "scripts"))
    shutil.copy(os.path.join(SOURCES, "scripts/tidy"), os.path.join(folder, "scripts"))
    shutil.copy(os.path.join(SOURCES, ".clang-tidy"), folder)

    def write(name, text):
        with open(os.path.join(folder, name), "w") as file:
            file.write(text)

    def commit():
        run("git", "add", "-A", folder=folder)
        run("git", "-c", "user.name=test", "-c", "user.email=test@localhost", "commit", "-q", "-m", "state", folder=folder)

    def tidy(*words, expected, base=""):
        return run("./scripts/tidy", *words, folder=folder, expected=expected, environment={"MPT_TIDY_BASE": base})

    for name, text in TIDY_PROJECT.items():
        write(name, text)
    run("git", "init", "-q", "-b", "main", folder=folder)
    commit()
    write("README", "words\n")
    commit()
    check("no C++ source in what differs" in tidy(expected=0), "a text is a source")
    check("no C++ source in what differs" in tidy(expected=0, base="0" * 40), "no commit is taken for one")
    check("knows no revision 'nothing'" in tidy(expected=1, base="nothing"), "a revision that is none is taken")
    printed = tidy("--all", expected=1)
    check("b.cpp:1:" in printed and "[bugprone-branch-clone]" in printed and "1 findings in 2 sources" in printed, printed)
    write("a.cpp", TIDY_PROJECT["a.cpp"] + "int c(bool x) { return x ? 2 : 2; }\n")
    printed = tidy(expected=1)
    check("a.cpp:4:" in printed and "b.cpp" not in printed, printed)
    write("a.cpp", TIDY_PROJECT["a.cpp"])
    write("a.h", TIDY_PROJECT["a.h"] + "inline int d(bool x) { return x ? 3 : 3; }\n")
    printed = tidy(expected=1)
    check("a.h:3:" in printed and "1 findings in 1 sources" in printed, printed)
    write("a.h", TIDY_PROJECT["a.h"])
    write("a.cpp", TIDY_PROJECT["a.cpp"] + "\n")
    commit()
    check("0 findings in 1 sources" in tidy("--base", "HEAD~1", expected=0), "what is clean has findings")
    check("1 of 1 sources: a.cpp" in tidy("--base", "HEAD~1", "--limit", "1e-9", expected=0), "what was left out is not named")
    check("knows no revision 'nothing'" in tidy("--base", "nothing", expected=1), "a revision that is none is taken")
    write("a.cpp", "int e() { return f(); }\n")
    check("use of undeclared identifier" in tidy(expected=1), "what does not compile passes")
    write("a.cpp", TIDY_PROJECT["a.cpp"])
    write("c.h", "int g() { return h(); }\n")
    commit()
    write("a.cpp", '#include "c.h"\n')
    check("c.h:1:18: error: use of undeclared identifier" in tidy(expected=1), "an error in a header that has not changed passes")


def check_accuracy(folder):
    """The page is what the programs predict today."""
    run("./scripts/bench", "accuracy", folder=folder, environment={"MPT_BIN": BIN})
    for page in ("reports/results/accuracy.md", "reports/results/accuracy.svg", "planner/explain/evidence.json"):
        with open(os.path.join(folder, page)) as written, open(os.path.join(SOURCES, page)) as kept:
            check(written.read() == kept.read(), f"{page} is out of date: ./scripts/bench accuracy")


SHOWN = """# A page
<!-- show: 1 -->
```console
$ shop list
apples 3
...
```
<!-- numbers vary -->
```
$ shop time \\
    --all
took 2 s
```
```
$ shop count
Searched all 20 shelves,
in 1.5 s: 4 full.
```
"""


def check_update_outputs(scratch):
    """A page of a program that says something else today, and which of it --check takes for a difference."""
    programs, page = os.path.join(scratch, "shop"), os.path.join(scratch, "page.md")
    os.makedirs(programs)
    script = os.path.join(SOURCES, "scripts/update_outputs")

    def shop(apples, took, counts):
        with open(os.path.join(programs, "shop"), "w") as file:
            file.write(f"#!/bin/sh\ncase $1 in\nlist) echo 'apples {apples}'; echo pears ;;\ntime) echo '{took}' ;;\n"
                       f"count) printf '{counts}\\n' ;;\nesac\n")
        os.chmod(os.path.join(programs, "shop"), 0o755)

    def checked(text, expected):
        with open(page, "w") as file:
            file.write(text)
        return run(script, "--check", programs, page, expected=expected)

    shop(3, "took 250 ms", "Searched all 21 shelves, in 900 ms: 5 full.")
    checked(SHOWN, 0)
    run(script, programs, page)
    with open(page) as file:
        new = file.read()
    check("--all\ntook 250 ms\n```" in new and "apples 3\n...\n```" in new and "Searched all 21" in new, new)
    shop(4, "took 250 ms", "Searched all 21 shelves, in 900 ms: 5 full.")
    check("+apples 4" in checked(SHOWN, 1), "another number is no difference")
    shop(3, "lasted 2 s", "Searched all 20 shelves,\\nin 1.5 s: 4 full.")
    check("+lasted #" in checked(SHOWN, 1), "another word is no difference")
    shop(3, "took 2 s", "Searched all 20 shelves,\\nin 1.5 s: 4 empty.")
    check("4 empty" not in SHOWN and "empty" in checked(SHOWN, 1), "another word among counts is no difference")
    cut_here = SHOWN.replace("```\n$ shop count\nSearched all 20 shelves,\nin 1.5 s: 4 full.", "<!-- show: /^Searched/ -->\n```\n$ shop count\nSearched all 20 shelves, in 1.5 s: 4 are\n...")
    shop(3, "took 2 s", "Searched all 20 shelves, in 15 ms: 4 are full\nand 5.")
    check(cut_here != SHOWN, "the paragraph is not cut")
    checked(cut_here, 0)
    shop(3, "took 2 s", "Searched some of 20 shelves, in 15 ms: 4 are full\nand 5.")
    check("some" in checked(cut_here, 1), "another word in the beginning of a paragraph is no difference")
    checked("# A page without commands\n", 1)
    checked("<!-- longest line: 8 -->\n```\n$ shop time\ntook 2 s\n```\n", 0)


def check_pictures(scratch):
    """The README's command as a picture, with the words that it prints; the stored pictures are small."""
    sys.path.insert(0, os.path.join(SOURCES, "scripts"))
    import terminal_svg
    screen = terminal_svg.Screen(12)
    screen.feed("working...\r\x1b[K\x1b[1;32mdone\x1b[0m  <3\ntwelve cells and more\nold\n\x1b[1A\x1b[Jnew\n")
    check(screen.text() == "done  <3\ntwelve cells\n and more\nnew", repr(screen.text()))
    drawn = terminal_svg.svg(screen, "a & b")
    check('fill="#7ee787" font-weight="bold">done</text>' in drawn and "&lt;3" in drawn and "a &amp; b" in drawn, drawn)
    run(os.path.join(SOURCES, "scripts/draw_pictures"), BIN, "--into", scratch, "plan.svg")
    words = "".join(xml.etree.ElementTree.parse(os.path.join(scratch, "plan.svg")).getroot().itertext())
    check("wrote plan.json" in words and "mpt-plan --model" in words, words)
    stored = os.path.join(SOURCES, "docs/pictures")
    for name in os.listdir(stored):
        check(os.path.getsize(os.path.join(stored, name)) <= 200_000, f"docs/pictures/{name} is larger than 200 kB")


def missing_for(name):
    if name == "step" and subprocess.run(["/usr/bin/python3", "-c", "import torch"], stderr=subprocess.DEVNULL).returncode:
        return "no python3-torch"
    return None


def check_benchmark(folder, name, words):
    reason = missing_for(name)
    if reason is None:
        more = ["--against", BIN, "--page", "commands.md"] if name == "commands" else []
        done = subprocess.run(["./scripts/bench", name, "--quick", *more], cwd=folder, env={**os.environ, "MPT_BIN": BIN}, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        reason = done.stdout.strip() if done.returncode == 3 else None  # what it needs is not here
    if reason:
        print(f"SKIPPED bench {name}: {reason}")
        return
    check(done.returncode == 0, f"bench {name}: exit code {done.returncode}\n{done.stdout[-3000:]}")
    for word in words:
        check(word in done.stdout, f"bench {name}: no {word!r} in\n{done.stdout[-3000:]}")


with tempfile.TemporaryDirectory() as scratch:
    check_framework_keys(scratch)
    check_kernel_tables(scratch)
    check_fixed_step_time(scratch)
    check_expert_layers(scratch)
    check_choice()
    check_update_outputs(scratch)
    check_pictures(scratch)
    check_blas()
    check_step(scratch)
    check_subjects(scratch)
    check_release(scratch)
    check_bounded_install(scratch)
    check_tidy(scratch)
    copy = os.path.join(scratch, "sources")
    for name in ("benchmarks", "core", "docs", "models/zoo", "planner/cost", "planner/explain", "profiler", "reports", "runtime", "scripts", "tests/support"):
        shutil.copytree(os.path.join(SOURCES, name), os.path.join(copy, name))
    for name in ("README.md", "CHANGELOG.md"):
        shutil.copy(os.path.join(SOURCES, name), copy)
    check("bench overlap" in run("./scripts/bench", folder=copy, expected=2), "bench does not say what it has")
    check_accuracy(copy)
    for name, words in BENCHMARKS.items():
        check_benchmark(copy, name, words)
print("record_framework_keys, build_kernel_tables, update_outputs, draw_pictures, bench " + ", bench ".join(["accuracy", *BENCHMARKS]))
