# SPDX-License-Identifier: Apache-2.0
"""mpt-plan check over folders of recipes: verdicts, exit codes, what changed against another state of the tree, and the files that it
writes. Usage: check_test.py BIN.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

BIN = sys.argv[1]
FAILED = []
MODEL = ("--num-layers 16 --hidden-size 2048 --ffn-hidden-size 8192 --num-attention-heads 32 --seq-length 4096 --max-position-embeddings "
         "4096 --vocab-size 32000 --micro-batch-size 1 --bf16 --use-distributed-optimizer --swiglu --disable-bias-linear ")
GOOD = "torchrun pretrain_gpt.py " + MODEL + "--global-batch-size 256 --tensor-model-parallel-size 2\n"


def check(what, right, why=""):
    if not right:
        FAILED.append(what)
        print(f"FAILED: {what}\n{why}")


def run(*arguments, folder=".", path=None):
    done = subprocess.run([os.path.join(BIN, "mpt-plan"), *map(str, arguments)], capture_output=True, text=True, timeout=300, cwd=folder,
                          env={**os.environ, **({"PATH": path} if path else {})})
    return done.returncode, done.stdout + done.stderr


def put(folder, name, text):
    path = os.path.join(folder, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as out:
        out.write(text)


def git(folder, *arguments):
    subprocess.run(["git", "-C", folder, "-c", "user.name=t", "-c", "user.email=t@t", "-c", "commit.gpgsign=false", *arguments],
                   check=True, capture_output=True)


def check_exit_codes(scratch):
    folder = os.path.join(scratch, "codes")
    put(folder, "good.sh", GOOD)
    put(folder, "README.md", "no recipe\n")
    code, output = run("check", folder, "--cluster", "dgx-h100:1")
    check("all well", code == 0 and "1 recipe on dgx-h100:1: 1 fit. 1 file without a recipe." in output, output)
    code, output = run("check", folder, "--cluster", "dgx-h100:1", "--verbose")
    check("files without a recipe by name", code == 0 and "README.md: no recipe" in output, output)
    code, output = run("check", os.path.join(folder, "README.md"), "--cluster", "dgx-h100:1")
    check("no recipe at all", code == 2 and "0 recipes" in output, output)
    put(folder, "hybrid.sh", "torchrun pretrain_gpt.py --hybrid-layer-pattern M*X- " + MODEL)
    code, output = run("check", folder, "--cluster", "dgx-h100:1")
    check("a recipe that cannot be read", code == 2 and "1 not read" in output and "--hybrid-layer-pattern" in output, output)
    code, output = run("check", folder, "--cluster", "dgx-h100:1", "--allow-unread")
    check("such a recipe, allowed", code == 0, output)
    put(folder, "illegal.sh", GOOD.replace("--tensor-model-parallel-size 2", "--tensor-model-parallel-size 3"))
    code, output = run("check", folder, "--cluster", "dgx-h100:1")
    check("an illegal recipe", code == 1 and "1 illegal" in output and "transformer_config.py:1324" in output, output)
    code, output = run("check", folder)
    check("no cluster", code == 2 and "--cluster" in output, output)
    code, output = run("check", os.path.join(folder, "nowhere"), "--cluster", "dgx-h100:1")
    check("no such folder", code == 2 and "nowhere" in output, output)
    code, output = run("check", folder, "--cluster", "dgx-h100:1", "--json", os.path.join(folder, "nowhere", "x.json"))
    check("a file that cannot be written", code == 2 and "--json" in output, output)


def check_files(scratch):
    folder = os.path.join(scratch, "files")
    names = ["a b&<c>.sh", "ä\"'.sh"]
    put(folder, "no character \ufffe\uffff.sh", GOOD)  # of XML
    put(folder, names[0], GOOD)
    put(folder, names[1], GOOD.replace("--bf16", "--micro-batch-size 32 --bf16").replace("-size 2\n", "-size 1\n"))
    put(folder, "bert.sh", "torchrun pretrain_bert.py " + MODEL)
    files = {kind: os.path.join(scratch, "check." + kind) for kind in ("junit", "sarif", "json")}
    code, output = run("check", folder, "--cluster", "dgx-h100:1", *[word for kind, file in files.items() for word in ("--" + kind, file)])
    check("a recipe that does not fit", code == 1 and "1 does not fit" in output, output)

    shown = "no character \\ufffe\\uffff.sh"
    suite = xml.etree.ElementTree.parse(files["junit"]).getroot().find("testsuite")
    cases = {os.path.basename(case.get("name")): case for case in suite.findall("testcase")}
    check("JUnit: all recipes", set(cases) == {*names, "bert.sh", shown}, set(cases))
    check("JUnit: counts", [suite.get(k) for k in ("tests", "failures", "errors")] == ["4", "1", "1"], suite.attrib)
    check("JUnit: a failure", cases[names[1]].find("failure").get("type") == "does_not_fit", cases)
    check("JUnit: what fits", cases[names[0]].find("failure") is None and "per step" in cases[names[0]].find("system-out").text, cases)

    with open(files["json"]) as file:
        told = json.load(file)
    recipes = {os.path.basename(r["recipe"]): r for r in told["recipes"]}
    check("JSON: verdicts", {name: r["verdict"] for name, r in recipes.items()}
          == {names[0]: "fits", names[1]: "does_not_fit", "bert.sh": "not_read", "no character \ufffe\uffff.sh": "fits"}, told)
    check("JSON: figures", recipes[names[0]]["step_time_s"] > 0 and recipes[names[1]]["peak_bytes"] > recipes[names[1]]["limit_bytes"], told)
    check("JSON: counts", told["counts"] == {"fits": 2, "illegal": 0, "does_not_fit": 1, "cannot_judge": 0, "not_read": 1}, told)
    check_sarif(files["sarif"])


def check_sarif(path):
    """The properties that SARIF 2.1.0 requires, and those that GitHub reads."""
    with open(path) as file:
        sarif = json.load(file)
    check("SARIF: version", sarif["version"] == "2.1.0" and sarif["$schema"].endswith("sarif-schema-2.1.0.json"), sarif)
    check("SARIF: top", set(sarif) == {"$schema", "version", "runs"} and len(sarif["runs"]) == 1, sarif)
    driver, results = sarif["runs"][0]["tool"]["driver"], sarif["runs"][0]["results"]
    rules = [rule["id"] for rule in driver["rules"]]
    check("SARIF: rules", len(set(rules)) == len(rules) and all(rule["shortDescription"]["text"] for rule in driver["rules"]), driver)
    check("SARIF: results", sorted(r["ruleId"] for r in results) == ["does-not-fit", "not-read"], results)
    for result in results:
        location = result["locations"][0]["physicalLocation"]
        uri = location["artifactLocation"]["uri"]
        right = (rules[result["ruleIndex"]] == result["ruleId"] and result["level"] in ("none", "note", "warning", "error")
                 and result["message"]["text"] and location["region"]["startLine"] >= 1 and uri.isascii()
                 and not set(uri) & set(" <>\"'&") and all(isinstance(v, str) for v in result["partialFingerprints"].values()))
        check("SARIF: a result", right, result)


def put_base(folder):
    put(folder, "recipes/same.sh", GOOD)
    put(folder, "recipes/slower.sh", GOOD)
    put(folder, "recipes/larger $(touch x).sh", GOOD)
    put(folder, "recipes/gone.sh", GOOD)
    put(folder, "recipes/sourced/run.sh", "source common.sh\ntorchrun pretrain_gpt.py $ARGS " + MODEL)
    put(folder, "recipes/sourced/common.sh", "ARGS='--global-batch-size 256 --tensor-model-parallel-size 2'\n")


def put_changes(folder):
    put(folder, "recipes/slower.sh", GOOD.replace("-size 2\n", "-size 4\n"))
    put(folder, "recipes/larger $(touch x).sh", GOOD.replace("--bf16", "--micro-batch-size 32 --bf16").replace("-size 2\n", "-size 1\n"))
    put(folder, "recipes/new.sh", GOOD)
    put(folder, "recipes/sourced/common.sh", "ARGS='--global-batch-size 512 --tensor-model-parallel-size 2'\n")
    os.remove(os.path.join(folder, "recipes/gone.sh"))


def check_changes(what, path, base, folder):
    told_in = os.path.join(folder, "told.json")
    code, output = run("check", path, "--cluster", "dgx-h100:1", "--base", base, "--json", told_in, folder=folder)
    if not os.path.exists(told_in):
        return check(f"{what}: {path} against {base}", False, output)
    with open(told_in) as file:
        told = json.load(file)
    os.remove(told_in)
    changes = {os.path.basename(r["recipe"]): r["change"] for r in told["recipes"]}
    check(f"{what}: changes of {path} against {base}", code == 1 and changes["same.sh"] == "" and changes["new.sh"] == "new"
          and changes["larger $(touch x).sh"] == "now does not fit" and changes["slower.sh"].startswith("+")
          and "step time" in changes["slower.sh"] and "step time" in changes["run.sh"], output)
    check(f"{what}: removed from {path}", [os.path.basename(name) for name in told["removed"]] == ["gone.sh"], told["removed"])


def check_base(scratch):
    now, before = (os.path.join(scratch, "folders", name) for name in ("now", "before"))
    for folder in (now, before):
        put_base(folder)
    put_changes(now)
    check_changes("folders", now, before, scratch)
    check_changes("folders", "now", "before", os.path.join(scratch, "folders"))
    check_changes("folders", "recipes", "../before/recipes", now)
    code, output = run("check", "recipes/slower.sh", "--cluster", "dgx-h100:1", "--base", "../before/recipes", folder=now)
    check("a file against a folder", code == 0 and "% step time" in output, output)
    check("no file name was run", not os.path.exists(os.path.join(now, "x")) and not os.path.exists("x"))
    code, output = run("check", "now", "before", "--cluster", "dgx-h100:1", "--base", "now", folder=os.path.join(scratch, "folders"))
    check("one folder for two paths", code == 2 and "--base" in output and "2 paths" in output, output)
    for base in ("no-such-branch", "--output=x", "now/recipes/same.sh"):
        code, output = run("check", "now", "--cluster", "dgx-h100:1", f"--base={base}", folder=os.path.join(scratch, "folders"))
        check(f"--base {base}", code == 2 and "is no folder" in output and "check the other state out" in output, output)


def remedy_of(output):
    """The command and the folder in "git worktree add ../base HEAD~1, then --base ../base"."""
    words = re.search(r"(git .*worktree add .*), then --base (\S+)", " ".join(output.split()))
    return words.groups() if words else ("false", "")


def check_work_trees(scratch):
    folder = os.path.join(scratch, "trees", "recipes")  # of the name of a folder in it
    put_base(folder)
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "Base")
    put_changes(folder)
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "Now")
    for where, path in ((folder, "recipes"), (folder, "."), (os.path.join(folder, "recipes"), "./"), (scratch, "trees/recipes/recipes/")):
        code, output = run("check", path, "--cluster", "dgx-h100:1", "--base", "HEAD~1", folder=where)
        command, base = remedy_of(output)
        check(f"a revision in {where}", code == 2 and "\"HEAD~1\" is no folder" in output and base, output)
        if not base:
            continue
        subprocess.run(["bash", "-ec", command], cwd=where, check=True, capture_output=True)
        check_changes("work trees", path, base, where)
        git(folder, "worktree", "remove", "--force", os.path.join(where, base))
    other = os.path.join(scratch, "trees", "other")
    git(folder, "worktree", "add", other, "HEAD~1")
    shutil.rmtree(os.path.join(other, "recipes"))
    code, output = run("check", "recipes/same.sh", "recipes/sourced", "--cluster", "dgx-h100:1", "--base", other, folder=folder)
    check("a base without the paths", code == 0 and output.count("new") == 2 and "removed" not in output, output)


def check_starts_nothing(scratch):
    """A work tree whose settings name programs, and a PATH with a git that leaves a mark."""
    folder, mark = os.path.join(scratch, "hostile"), os.path.join(scratch, "mark")
    put(folder, "recipes/same.sh", GOOD)
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "Base")
    shutil.copytree(folder, folder + "-base")
    for program in ("bin/git", "up.sh"):
        put(folder, program, f"#!/bin/sh\ntouch {mark}\nexit 1\n")
        os.chmod(os.path.join(folder, program), 0o755)
    for tree in (folder, folder + "-base"):
        with open(os.path.join(tree, ".git", "config"), "a") as config:
            config.write(f"[core]\n\tfsmonitor = {folder}/up.sh\n\tsshCommand = {folder}/up.sh\n[extensions]\n\tpartialClone = origin\n"
                         f"[remote \"origin\"]\n\turl = {tree}\n\tpromisor = true\n\tuploadpack = {folder}/up.sh\n")
        objects = os.path.join(tree, ".git", "objects")
        for name in os.listdir(objects):
            if len(name) == 2:
                shutil.rmtree(os.path.join(objects, name))
    path = os.path.join(folder, "bin") + ":" + os.environ["PATH"]
    for base, expected in (("HEAD", 2), (folder + "-base", 0)):
        for programs in (path, os.environ["PATH"]):
            code, output = run("check", "recipes", "--cluster", "dgx-h100:1", "--base", base, folder=folder, path=programs)
            check(f"a hostile work tree and {base}", code == expected, output)
            check(f"a hostile work tree and {base}: nothing is started", not os.path.exists(mark), output)


def check_work(scratch):
    """Large files of every form, in processor seconds; a script without end."""
    keys, folder = range(80000), os.path.join(scratch, "work")
    put(folder, "keys.json", '{"model": 0' + "".join(f', "k{i}": 0' for i in keys) + "}")
    put(folder, "keys.yaml", "distributed_type: FSDP\nfsdp_config:\n" + "".join(f"  k{i}: 0\n" for i in keys))
    put(folder, "keys.sh", "pretrain_gpt.py --num-layers 2\n" + "".join(f"K{i}=0\n" for i in keys))
    names = "".join(f"k{i} = {i}\n" for i in keys) + "".join(f"def g{i}():\n    return {i}\n" for i in keys[:20000])
    put(folder, "config_registry.py", f"from torchtitan.trainer import Trainer\n{names}def f() -> Trainer.Config:\n    return Trainer.Config("
        "model_spec=g('8B'))\n")
    for name in sorted(os.listdir(folder)):
        before = os.times().children_user
        code, output = run("check", os.path.join(folder, name), "--cluster", "dgx-h100:1", "--allow-unread")
        seconds = os.times().children_user - before
        check(f"{name}: {seconds:.2f} s", code in (0, 1, 2) and seconds < 2.0, output[-400:])
    cluster = '{"name": "x", "nodes": 2, "device": {"like": "h100-sxm-80gb"' + "".join(f', "k{i}": 0' for i in keys) + "}}"
    put(scratch, "cluster.json", cluster)
    before = os.times().children_user
    code, output = run("check", folder, "--cluster", os.path.join(scratch, "cluster.json"))
    seconds = os.times().children_user - before
    check(f"a cluster of 80,000 keys: {seconds:.2f} s", code == 2 and "unknown key" in output and seconds < 5.0, output[-400:])
    put(folder, "itself/run.sh", "source common.sh\ntorchrun pretrain_gpt.py " + MODEL)
    put(folder, "itself/common.sh", "source run.sh\n# " + "x" * 2**20 + "\nsource run.sh\n")
    code, output = run("check", os.path.join(folder, "itself/run.sh"), "--cluster", "dgx-h100:1")
    check("a script that sources itself", code == 2 and "common.sh" in output and "sources" in output, output)


SECRET = "XyzzySecret7"


def leaks(scratch):
    """Ways of a recipe to have files or variables of whoever checks it printed: (name, files of the recipe)."""
    outside = os.path.join(scratch, "outside")
    script, accelerate = "torchrun pretrain_gpt.py --num-layers $SECRET " + MODEL.replace("--num-layers 16", "") + "\n", "distributed_type: DEEPSPEED\nnum_processes: 8\n"
    python = "from torchtitan.trainer import Trainer\nfrom {} import N\ndef f() -> Trainer.Config:\n    return Trainer.Config(training=TrainingConfig(seq_len=N), model_spec=model_registry('8B'))\n"
    llama = "model_name_or_path: meta-llama/Llama-3.1-8B\ncutoff_len: 2048\nfinetuning_type: full\nbf16: true\nstage: sft\n"
    request = {"model": os.path.join(outside, "config.json"), "global_batch": 64, "cluster": "dgx-h100", "bounds": {"tp": [2]}}
    return {
        "the environment of the process": {"run.sh": "source /proc/self/environ\n" + script},
        "the environment through a link": {"run.sh": "source system/proc/self/environ\n" + script, "system": "/"},
        "a variable by its name": {"run.sh": script},
        "a default of a variable": {"run.sh": script.replace("$SECRET", "${SECRET:-x}")},
        "a command": {"run.sh": script.replace("$SECRET", f"$(cat {outside}/s.sh)")},
        "a script by its path": {"run.sh": f"source {outside}/s.sh\n" + script},
        "a script by dots": {"run.sh": "source ../outside/s.sh\n" + script},
        "a script through a linked folder": {"run.sh": "source away/s.sh\n" + script, "away": outside},
        "a script through a linked file": {"run.sh": "source away.sh\n" + script, "away.sh": os.path.join(outside, "s.sh")},
        "what git keeps": {"run.sh": "source .git/s.sh\n" + script, ".git/s.sh": f"SECRET={SECRET}\n"},
        "JSON of accelerate": {"accelerate.yaml": accelerate + f"deepspeed_config:\n  deepspeed_config_file: {outside}/ds.json\n"},
        "JSON of accelerate by dots": {"accelerate.yaml": accelerate + "deepspeed_config:\n  deepspeed_config_file: ../outside/ds.json\n"},
        "JSON of LLaMA-Factory": {"train.yaml": llama + f"deepspeed: {outside}/ds.json\n"},
        "JSON of axolotl": {"axolotl.yaml": "base_model: meta-llama/Llama-3.1-8B\nsequence_len: 2048\nmicro_batch_size: 1\n" + f"deepspeed: {outside}/ds.json\n"},
        "a launch line's file": {"run.sh": f"accelerate launch --config_file ../outside/accelerate.yaml train.py --block_size 2048 --per_device_train_batch_size 1\n"},
        "a launch line's DeepSpeed": {"run.sh": f"deepspeed train.py --deepspeed {outside}/ds.json --block_size 2048 --per_device_train_batch_size 1 --model_name_or_path meta-llama/Llama-3.1-8B\n"},
        "a module by dots": {"config_registry.py": python.format("..outside.mod")},
        "a module of a folder above": {"config_registry.py": python.format("outside.mod")},
        "a model's configuration": {"request.json": json.dumps(request)},
        "a model beside, a link": {"ds.json": json.dumps({"zero_optimization": {"stage": 2}, "train_batch_size": 16}), "config.json": os.path.join(outside, "config.json")},
    }


def put_outside(scratch):
    put(scratch, "outside/s.sh", f"SECRET={SECRET}\n")
    put(scratch, "outside/mod.py", f"N = '{SECRET}'\n")
    put(scratch, "outside/__init__.py", "")
    put(scratch, "outside/ds.json", json.dumps({"zero_optimization": {"stage": SECRET}, "train_batch_size": SECRET, "train_micro_batch_size_per_gpu": SECRET}))
    put(scratch, "outside/config.json", json.dumps({"model_type": SECRET, "hidden_size": SECRET, "architectures": [SECRET]}))
    put(scratch, "outside/accelerate.yaml", f"distributed_type: {SECRET}\n")


def put_tree(folder, files):
    """A file for each name, or a link where the content is a path of the system."""
    for name, content in files.items():
        if content.startswith("/"):
            os.makedirs(os.path.dirname(os.path.join(folder, name)), exist_ok=True)
            os.symlink(content, os.path.join(folder, name))
        else:
            put(folder, name, content)


def check_leaks(scratch):
    """No report has a word of what is outside; and without the boundary these ways are ways."""
    put_outside(scratch)
    os.environ["SECRET"] = SECRET
    open_ways = 0
    for number, (what, files) in enumerate(leaks(scratch).items()):
        tree, told = os.path.join(scratch, f"stranger{number}"), os.path.join(scratch, f"told{number}")
        put_tree(tree, files)
        put(told, "x", "")
        outputs = [word for kind in ("junit", "sarif", "json") for word in ("--" + kind, os.path.join(told, kind))]
        _, before = run("check", ".", "--cluster", "dgx-h100:1", "--verbose", folder=tree)
        open_ways += SECRET in before
        for command in (["check", ".", "--untrusted", *outputs], ["check", tree, "--untrusted", "--root", tree]):
            code, output = run(*command, "--cluster", "dgx-h100:1", "--verbose", folder=tree)
            output += "".join(open(os.path.join(told, name)).read() for name in sorted(os.listdir(told)))
            check(f"{what} stays away from {command[2]} {command[3]}", SECRET not in output and code in (0, 1, 2) and "signal" not in output, output)
        recipe = os.path.join(tree, list(files)[0])
        code, output = run("import", recipe, "--root", tree, "--cluster", "dgx-h100:1")
        check(f"{what} stays away from import", SECRET not in output and code in (0, 2), output)
    check("ways that are open without the boundary", open_ways >= 9, open_ways)


def verdicts(folder, *words, **more):
    told = os.path.join(os.path.dirname(folder), "told.json")
    code, output = run("check", ".", "--untrusted", "--cluster", "dgx-h100:1", "--json", told, *words, folder=folder, **more)
    with open(told) as file:
        rows = {one["recipe"]: one for one in json.load(file)["recipes"]}
    os.remove(told)
    return code, output, rows


def check_odd_files(scratch):
    """One file that cannot be read, or takes too much, is a row; the others have their verdicts."""
    folder = os.path.join(scratch, "odd")
    put(folder, "a_good.sh", GOOD)
    put(folder, "z_good.sh", GOOD)
    calls = "".join("    " * depth + f"for x{depth} in [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]:\n" for depth in range(1, 7))
    slow = "def g():\n" + calls + "    " * 7 + "y = [x1]\n    return y\n"
    configurations = "".join(f"def f{i}() -> Trainer.Config:\n    g()\n    return Trainer.Config(model_spec=model_registry('8B'))\n" for i in range(60))
    put(folder, "m_slow/config_registry.py", "from torchtitan.trainer import Trainer\n" + slow + configurations)
    put(folder, "n_many/config_registry.py", "from torchtitan.trainer import Trainer\n" + configurations.replace("    g()\n", "") * 70)
    put(folder, "p_large.sh", GOOD.replace("--global-batch-size 256", "--global-batch-size 10000000 --pipeline-model-parallel-size 8"))
    os.symlink("/etc/passwd", os.path.join(folder, "q_link.sh"))
    code, output, rows = verdicts(folder, "q_link.sh")
    check("odd files: good ones are judged", rows["a_good.sh"]["verdict"] == rows["z_good.sh"]["verdict"] == "fits", output)
    check("odd files: a slow one", "of a processor" in rows["m_slow/config_registry.py"]["reason"], rows)
    check("odd files: too many configurations", "steps" in rows["n_many/config_registry.py"]["reason"], rows)
    check("odd files: a large one has a verdict", rows["p_large.sh"]["verdict"] != "fits", rows["p_large.sh"])
    check("odd files: a link that was named", rows["q_link.sh"]["reason"].startswith("outside of the recipes, not read"), rows)
    check("odd files: the exit code", code in (1, 2), output)
    code, output, rows = verdicts(folder, "--time-limit", 1)
    late = [row["reason"] for row in rows.values() if "time for all files was over" in row["reason"]]
    check("the time of all files ends", late and rows["a_good.sh"]["verdict"] == "fits", rows)
    folder = os.path.join(scratch, "closed")
    put(folder, "a_good.sh", GOOD)
    put(folder, "z_closed.sh", GOOD)
    os.chmod(scratch, 0o755)
    os.chmod(os.path.join(folder, "z_closed.sh"), 0)
    user = {"user": 65534} if os.getuid() == 0 else {}
    done = subprocess.run([os.path.join(BIN, "mpt-plan"), "check", folder, "--cluster", "dgx-h100:1"], capture_output=True, text=True, timeout=300, **user)
    check("a file without permission", "z_closed.sh" in done.stdout and "cannot be read" in done.stdout and "a_good.sh" in done.stdout, done.stdout + done.stderr)


def check_unseen_files(scratch):
    """A recipe that is too large, holds a zero byte or lies behind a link is a row; data of such kinds is none."""
    folder = os.path.join(scratch, "unseen")
    large = "#" * (9 << 20) + "\n" + GOOD
    put(folder, "good.sh", GOOD)
    for name in ("large.sh", "large.txt", "large.args"):
        put(folder, name, large)
    put(folder, "data.txt", "word " * (2 << 20))
    put(folder, "data.json", '{"text": "' + "word " * (2 << 20) + '"}')
    put(folder, "zero.sh", "# \0\n" + GOOD)
    put(folder, "picture.png", "PNG\0--num-layers")
    put(scratch, "outside/more.sh", GOOD)
    os.symlink(os.path.join(scratch, "outside/more.sh"), os.path.join(folder, "link.sh"))
    os.symlink("/nowhere/more.yaml", os.path.join(folder, "nothing.yaml"))
    os.symlink("good.sh", os.path.join(folder, "same.sh"))
    os.symlink("/nowhere/data.bin", os.path.join(folder, "data.bin"))
    code, output, rows = verdicts(folder)
    unread = {name for name, row in rows.items() if row["verdict"] == "not_read"}
    check("recipes that are not seen are rows", unread == {"large.sh", "large.txt", "large.args", "zero.sh", "link.sh", "nothing.yaml"}, rows)
    check("and nothing else is", set(rows) - unread == {"good.sh"} and code == 2, rows)
    check("their reasons", "9.00 MiB" in rows["large.txt"]["reason"] and "zero byte" in rows["zero.sh"]["reason"] and
          "outside of the recipes" in rows["link.sh"]["reason"], rows)
    code, output = run("check", folder, "--cluster", "dgx-h100:1")
    check("one's own link is followed", "link.sh" in output and "outside" not in output, output)


def check_untrusted_outputs(scratch):
    folder, victim = os.path.join(scratch, "linked"), os.path.join(scratch, "victim")
    put(folder, "recipes/good.sh", GOOD)
    put(scratch, "victim", "of the runner\n")
    os.symlink(victim, os.path.join(folder, "check.xml"))
    os.symlink(scratch, os.path.join(folder, "away"))
    for output in ("check.xml", "away/new.xml", "new.xml", os.path.join(folder, "check.xml")):
        code, text = run("check", "recipes", "--untrusted", "--cluster", "dgx-h100:1", "--junit", output, folder=folder)
        check(f"an output in the tree, {output}", code == 2 and "--junit" in text and "another folder" in text, text)
    check("what a link leads to is kept", open(victim).read() == "of the runner\n" and os.path.islink(os.path.join(folder, "check.xml")))
    code, text = run("check", "recipes", "--untrusted", "--cluster", "dgx-h100:1", "--junit", victim, folder=folder)
    check("an output beside the tree", code == 0 and open(victim).read().startswith("<?xml"), text)
    code, text = run("check", ".", "--untrusted", "--cluster", "dgx-h100:1", "--json", "../beside.json", folder=os.path.join(folder, "recipes"))
    check("an output beside the checked folder", os.path.exists(os.path.join(folder, "beside.json")), text)


def check_untrusted_base(scratch):
    now, before = (os.path.join(scratch, "strangers", name) for name in ("now", ".before"))
    for folder in (now, before):
        put_base(folder)
    put_changes(now)
    told = {}
    for words in ([], ["--untrusted"]):
        file = os.path.join(scratch, "strangers", "told.json")
        code, output = run("check", ".", "--cluster", "dgx-h100:1", "--base", before, "--json", file, *words, folder=now)
        with open(file) as text:
            told[len(words)] = (code, json.load(text))
    check("strangers' recipes against a base have the same verdicts", told[0] == told[1] and told[0][1]["removed"], told)


def check_estimate():
    layout = ["--model", "llama3-8b", "--cluster", "dgx-h100:1", "--global-batch", 64, "--tp", 1, "--dp", 8, "--micro-batch", 8]
    code, output = run("estimate", *layout)
    check("an estimate that does not fit", code == 0 and "DOES NOT FIT" in output, output)
    code, output = run("estimate", *layout, "--check")
    check("the same, checked", code == 1 and "DOES NOT FIT" in output, output)
    code, output = run("estimate", "--model", "llama3-8b", "--cluster", "dgx-h100:1", "--global-batch", 64, "--tp", 4, "--sp", "on",
                       "--zero", 1, "--recompute", "full", "--check")
    check("an estimate that fits, checked", code == 0, output)
    code, output = run("estimate", "--model", "llama3-8b", "--cluster", "dgx-h100:1", "--global-batch", 64, "--tp", 1, "--pp", 4, "--zero", 3,
                       "--recompute", "full", "--check")
    check("a layout that cannot run, checked", code == 1 and "cannot run" in output, output)


def main():
    with tempfile.TemporaryDirectory() as scratch:
        check_exit_codes(scratch)
        check_files(scratch)
        check_base(scratch)
        check_work_trees(scratch)
        check_starts_nothing(scratch)
        check_work(scratch)
        check_leaks(scratch)
        check_odd_files(scratch)
        check_unseen_files(scratch)
        check_untrusted_outputs(scratch)
        check_untrusted_base(scratch)
        check_estimate()
    print(f"{len(FAILED)} failed" if FAILED else "every recipe was judged")
    return 1 if FAILED else 0


sys.exit(main())
