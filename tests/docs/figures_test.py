# SPDX-License-Identifier: Apache-2.0
"""Figures that pages quote are those of their sources (scripts/update_figures), and pictures are those that a script draws from the
command below them.

Usage: figures_test.py SOURCES
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

SOURCES = os.path.abspath(sys.argv[1])
PAGES = ("README.md", *sorted(f"docs/{name}" for name in os.listdir(os.path.join(SOURCES, "docs")) if name.endswith(".md")))
LINK = re.compile(r"!\[[^\]]*\]\(([^)]*pictures/[^)]*)\)(?:\n\*`([^`]*)`)?")


def check(condition, what):
    if not condition:
        sys.exit(str(what))


def read(root, page):
    with open(os.path.join(root, page)) as file:
        return file.read()


def write(root, page, text):
    with open(os.path.join(root, page), "w") as file:
        file.write(text)


def update(root, *words):
    return subprocess.run([os.path.join(SOURCES, "scripts/update_figures"), *words, root], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)


def check_figures():
    done = update(SOURCES, "--check")
    check(done.returncode == 0, done.stdout)
    with tempfile.TemporaryDirectory() as root:
        for name in ("docs", "reports/results"):
            shutil.copytree(os.path.join(SOURCES, name), os.path.join(root, name))
        os.makedirs(os.path.join(root, "core"))
        os.makedirs(os.path.join(root, "planner/explain"))
        for name in ("README.md", "CHANGELOG.md", "core/plan.h", "core/ties.h"):
            shutil.copy(os.path.join(SOURCES, name), os.path.join(root, name))
        check_a_change(root, "docs/frameworks.md", "published layouts that ran out of memory, ", "published layouts that ran out of memory, 1")
        check_a_change(root, "README.md", "MPT's choice was the fastest in ", "MPT's choice was the fastest in 1")
        check_a_change(root, "docs/gpu.md", "On the H200 all ", "On the H200 all 1")
        source = read(root, "reports/results/accuracy.md")
        write(root, "reports/results/accuracy.md", source.replace(" refused, ", " refused, 1"))
        check(update(root, "--check").returncode == 1, "another figure in a source is not seen")
        check(update(root).returncode == 0 and update(root, "--check").returncode == 0, "is not taken over")
        page = read(root, "docs/search.md")
        write(root, "docs/search.md", page + "\nNine of 4321 plans agree ([accuracy](../reports/results/accuracy.md)).\n")
        done = update(root, "--check")
        check(done.returncode == 1 and "4321 is from no entry" in done.stdout, done.stdout)


def check_a_change(root, page, old, new):
    """A figure with another digit is found, and written back."""
    before = read(root, page)
    write(root, page, before.replace(old, new))
    done = update(root, "--check")
    check(done.returncode == 1, f"{page}: {new}: {done.stdout}")
    check(update(root).returncode == 0 and read(root, page) == before, f"{page}: not written back")


def check_cases():
    """What the last words of a case in docs/cases.md say of layouts stands in its outputs."""
    for case in re.split(r"^## ", read(SOURCES, "docs/cases.md"), flags=re.M)[1:]:
        outputs, _, text = case.rpartition("\n```\n")
        for words in re.findall(r"ZeRO \d|\b(?:tp|cp|pp|dp|ep)\d+", text):
            check(words in outputs, f"docs/cases.md: \"{words}\" of the text is in no output of \"{case.splitlines()[0]}\"")


def check_pictures():
    commands = {}
    for script in ("draw_pictures", "draw_search"):
        commands.update(json.loads(subprocess.run([os.path.join(SOURCES, "scripts", script), "--commands"], stdout=subprocess.PIPE,
                                                  check=True, text=True).stdout))
    stored = os.listdir(os.path.join(SOURCES, "docs/pictures"))
    linked = {}
    for page in PAGES:
        for target, command in LINK.findall(read(SOURCES, page)):
            linked.setdefault(os.path.basename(target), []).append((page, command))
    check(sorted(stored) == sorted(commands), f"docs/pictures has {sorted(stored)}, scripts draw {sorted(commands)}")
    check(sorted(stored) == sorted(linked), f"docs/pictures has {sorted(stored)}, linked are {sorted(linked)}")
    for name, places in linked.items():
        for page, command in places:
            check(command == commands[name], f"{page}: below {name} stands \"{command}\", but it is drawn from \"{commands[name]}\"")


check_figures()
check_cases()
check_pictures()
print("figures of sentences, and commands of pictures")
