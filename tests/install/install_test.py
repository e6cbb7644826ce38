# SPDX-License-Identifier: Apache-2.0
"""What cmake --install puts somewhere works there: programs, manual pages, completion, and find_package(mpt). So does the
Debian package.

Usage: install_test.py BUILD_FOLDER CMAKE GENERATOR
"""

import glob
import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

BUILD, CMAKE, GENERATOR = sys.argv[1:4]
HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAMS = ("mpt-plan", "mpt-run", "mpt-profile")
PLAN = ("--model", "llama3-8b", "--cluster", "dgx-h100:1", "--global-batch", 32, "-o")


def run(*command, folder=None, **environment):
    done = subprocess.run(list(map(str, command)), cwd=folder, env={**os.environ, **environment}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        sys.exit(f"{command}: exit code {done.returncode}\n{done.stdout[-3000:]}")
    return done.stdout


with tempfile.TemporaryDirectory() as scratch:
    prefix, plan = os.path.join(scratch, "prefix"), os.path.join(scratch, "by-program.json")
    run(CMAKE, "--install", BUILD, "--prefix", prefix)
    run(f"{prefix}/bin/mpt-plan", *PLAN, plan)
    version = run(f"{prefix}/bin/mpt-run", "--version")
    for words in ("mpt 0.", "CPU kernels:", "GPU module:"):
        assert words in version, version
    documents = f"{prefix}/share/doc/mpt/docs"
    assert f"docs/: {os.path.realpath(documents)}" in version, version
    for named in re.findall(r"\bdocs/\w+\.md", run("grep", "-rhoE", r"docs/\w+\.md", *(f"{prefix}/bin/{name}" for name in PROGRAMS), "-a")):
        assert os.path.exists(os.path.join(documents, os.path.basename(named))), f"{named} is not installed"
    for program in PROGRAMS:
        page = gzip.open(glob.glob(f"{prefix}/**/man1/{program}.1.gz", recursive=True)[0], "rt").read()
        for words in (".SH NAME", ".SH EXIT STATUS", "130", "\\-\\-help"):
            assert words in page, (program, words)
        completion = glob.glob(f"{prefix}/**/completions/{program}", recursive=True)[0]
        script = f'source {completion}; COMP_WORDS=({program} --vers); COMP_CWORD=1; _{program.replace("-", "_")}; echo "${{COMPREPLY[@]}}"'
        assert run("bash", "-c", script).split() == ["--version"], program
    for name in ("README.md", "LICENSE", "NOTICE", "CHANGELOG.md"):
        assert glob.glob(f"{prefix}/share/doc/*/{name}"), f"{name} is not installed"
    for words, wanted in (("export --t", ["--to"]), ("--framework megatron-c", ["megatron-core"]), ("--model llama3-7", ["llama3-70b"]),
                          ("--cluster hgx-h8", ["hgx-h800"])):
        script = (f"source {prefix}/share/bash-completion/completions/mpt-plan; COMP_WORDS=(mpt-plan {words}); COMP_CWORD=2; _mpt_plan; "
                  'echo "${COMPREPLY[@]}"')
        assert run("bash", "-c", script).split() == wanted, words
    example = os.path.join(scratch, "example")
    run(CMAKE, "-G", GENERATOR, "-S", os.path.join(HERE, "../../examples/plan"), "-B", example, f"-DCMAKE_PREFIX_PATH={prefix}")
    run(CMAKE, "--build", example)
    said = run(f"{example}/plan", "llama3-8b", "dgx-h100:1", 32, folder=scratch)
    with open(plan) as by_program, open(os.path.join(scratch, "plan.json")) as by_library:
        of_program, of_library = json.load(by_program), json.load(by_library)
    for key in ("layout", "prediction", "request"):
        assert of_program[key] == of_library[key], key
    assert f"{of_program['prediction']['step_time_s']:.3f} s per step" in said, said
    if shutil.which("dpkg-deb"):
        name = run(os.path.join(HERE, "../../scripts/package"), MPT_BUILD=BUILD).split()[-1]
        unpacked = os.path.join(scratch, "unpacked")
        run("dpkg-deb", "-x", os.path.join(BUILD, name), unpacked)
        depends = run("dpkg-deb", "-f", os.path.join(BUILD, name), "Depends")
        assert "libc6" in depends and "libfmt" in depends, depends
        run(f"{unpacked}/usr/bin/mpt-plan", *PLAN, plan)
print("installed, used, linked against, packaged")
