# SPDX-License-Identifier: Apache-2.0
"""What a captured script may not do, and how a shell script is read. No test needs torch; tests/frameworks/capture_test.py has what does."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from mpt.capture import launchers, shell

ENDED = "before a framework had parsed its configuration"


def capture(folder, *command, **environment):
    """rc, what was said, and that no file has changed."""
    def state():
        return {str(path): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}
    before = state()
    done = subprocess.run([sys.executable, "-m", "mpt.capture", "-o", "captured.json", "--", *command], cwd=folder, capture_output=True, text=True,
                          timeout=120, env={**os.environ, **environment})
    assert state() == before, done.stdout + done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout, done.stderr


def run(folder, text, **environment):
    (folder / "train.py").write_text(text)
    (folder / "kept.txt").write_text("kept")
    (folder / "kept").mkdir(exist_ok=True)
    (folder / "kept/deep.txt").write_text("kept")
    return capture(folder, "python", "train.py", **environment)


@pytest.mark.parametrize("line, what", [
    ("os.remove('kept.txt')", "would remove kept.txt"),
    ("pathlib.Path('kept.txt').unlink()", "would remove kept.txt"),
    ("os.replace('kept.txt', 'other.txt')", "would rename kept.txt"),
    ("shutil.move('kept.txt', 'other.txt')", "would rename kept.txt"),
    ("shutil.rmtree('kept', ignore_errors=True)", "would remove kept with all that it holds"),
    ("io.FileIO('new.txt', 'w')", "would write new.txt"),  # past the diversion
    ("os.truncate('kept.txt', 0)", "would truncate kept.txt"),
    ("sqlite3.connect('runs.db')", "would open the database runs.db"),
    ("os.system('touch new.txt')", "would start a program: touch new.txt"),
    ("subprocess.run(['touch', 'new.txt'])", "would start a program: touch new.txt"),
    ("subprocess.run('touch new.txt', shell=True)", "would start a program: /bin/sh -c touch new.txt"),
    ("os.fork()", "would start a process"),
    ("os.execvp('touch', ['touch', 'new.txt'])", "would start a process"),
    ("os.posix_spawn('/usr/bin/touch', ['touch', 'new.txt'], {})", "would start a process"),
    ("multiprocessing.get_context('fork').Process(target=print).start()", "would start a process"),
    ("multiprocessing.get_context('spawn').Process(target=print).start()", "would start a process"),
    ("os.kill(os.getppid(), 15)", "would send signal 15"),
])
def test_a_script_ends_at_what_changes_something(tmp_path, line, what):
    """Also where the script catches everything, and has more to do afterwards."""
    rc, printed, said = run(tmp_path, f"import io, multiprocessing, os, pathlib, shutil, sqlite3, subprocess\ntry:\n    {line}\n"
                            "except BaseException:\n    pass\nfinally:\n    print('went on')\n")
    assert rc == 2 and "went on" not in printed, printed + said
    assert f"train.py line 3: found that it {what}" in said and ENDED in said, said
    assert "rank 0 of 1" in said and "no file changed" in said


def test_what_a_script_writes_goes_to_a_temporary_folder(tmp_path):
    """Files are read back as written, in every usual way; those that are there stay."""
    rc, printed, said = run(tmp_path, """
import json, logging, os, pathlib, shutil, tempfile
os.makedirs("out/logs", exist_ok=True)
logging.basicConfig(filename="out/logs/train.log", level=20)
logging.info("started")
assert "started" in open("out/logs/train.log").read()
assert os.listdir("out") == ["logs"] and [one.name for one in pathlib.Path("out/logs").iterdir()] == ["train.log"]
with open("config.tmp", "w") as file:
    json.dump({"a": 1}, file)
os.replace("config.tmp", "config.json")
assert json.load(open("config.json")) == {"a": 1} and not os.path.exists("config.tmp")
open("kept.txt", "w").write("other")
assert open("kept.txt").read() == "other"
with open("kept/deep.txt", "a") as file:
    file.write(" and more")
assert pathlib.Path("kept/deep.txt").read_text() == "kept and more"
os.rename("config.json", "kept.txt")
assert os.path.getsize("kept.txt") == 8
os.symlink("out", "latest")
pathlib.Path("touched").touch()
os.utime("kept/deep.txt")
os.chmod("train.py", 0o700)
shutil.rmtree("out")
assert not os.path.exists("out")
with tempfile.TemporaryDirectory() as folder:
    pathlib.Path(folder, "x").write_text("x")
try:
    os.mkdir("kept")
except FileExistsError:
    print("kept is there")
try:
    open("nowhere/new.txt", "w")
except FileNotFoundError:
    print("no such folder")
""")
    assert rc == 2 and "kept is there\nno such folder" in printed, printed + said
    assert "train.py: found that it ended before a framework" in said, said
    assert "went to a temporary folder, which is gone: out, out/logs, out/logs/train.log" in said


def test_compiled_code_cannot_write(tmp_path):
    rc, printed, said = run(tmp_path, "import ctypes\nprint(ctypes.CDLL(None).creat(b'new.txt', 0o644))\nprint(ctypes.CDLL(None).unlink(b'kept.txt'))\n")
    if "no Landlock" in said:
        pytest.skip("this kernel has no Landlock")
    assert rc == 2 and printed == "-1\n-1\n", printed + said


def test_programs_that_only_answer_are_asked(tmp_path):
    rc, printed, said = run(tmp_path, "import platform, subprocess\nprint(subprocess.run(['uname', '-s'], capture_output=True, text=True).stdout)\nplatform.processor()\n")
    assert rc == 2 and "Linux" in printed and "These programs were asked: uname." in said


def package(folder, name, text, wants="Requires-Python: >=3.6"):
    """An installed one."""
    site = folder / "installed/site-packages"
    (site / name).mkdir(parents=True)
    (site / name / "__init__.py").write_text(text)
    held = site / f"{name}-1.2.dist-info"
    held.mkdir()
    (held / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n{wants}\n")
    (held / "RECORD").write_text(f"{name}/__init__.py,,\n{name}-1.2.dist-info/METADATA,,\n")
    (held / "top_level.txt").write_text(name + "\n")
    return {"PYTHONPATH": os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH")])), "PYTHONDONTWRITEBYTECODE": "1"}


def test_libraries_send_nothing(tmp_path):
    """Trackers are told so by their variables, clients of HTTP are refused what is no question."""
    site = package(tmp_path, "httpx", "class Client:\n    def send(self, request):\n        return 'sent'\n")
    rc, printed, said = run(tmp_path, """
import os, httpx, types
print(os.environ["WANDB_MODE"], httpx.Client().send(types.SimpleNamespace(method="GET", url="https://a/b")))
try:
    httpx.Client().send(types.SimpleNamespace(method="POST", url="https://a/upload"))
except ConnectionError as error:
    print(error)
""", **site)
    assert rc == 2 and "disabled sent\nmpt.capture sends nothing: POST https://a/upload" in printed and "Not sent: https://a/upload." in said, printed + said


def test_a_library_may_miss_a_program(tmp_path):
    """Many try one when they are imported. A script's own program ends the capture."""
    site = package(tmp_path, "tries", "import subprocess\ntry:\n    subprocess.run(['touch', 'new.txt'])\nexcept OSError as error:\n    print(error)\n")
    rc, printed, said = run(tmp_path, "import tries\nprint('went on')\n", **site)
    assert rc == 2 and "mpt.capture starts no other program: touch new.txt\nwent on" in printed and "ended before a framework" in said, printed + said


@pytest.mark.parametrize("text, wants, finding, remedy", [
    ("from typing import no_such_name", "Requires-Python: >=3.99", "ImportError: cannot import name 'no_such_name'", "broken 1.2 needs Python >=3.99, and this is 3."),
    ("raise ValueError('key contains names that are not arguments')", "Requires-Python: >=3.6", "ValueError: key contains names", "may not go together: broken 1.2"),
    ("import no_such_module", "Requires-Python: >=3.6", "ModuleNotFoundError", "the module no_such_module is not in this environment"),
    ("raise RuntimeError('Found no NVIDIA driver on your system')", "Requires-Python: >=3.6", "RuntimeError: Found no NVIDIA driver", "on a machine that has one"),
])
def test_a_library_that_stops_is_named_in_words(tmp_path, text, wants, finding, remedy):
    """The line of the script, the error and the line that raised it, and what to do."""
    rc, _, said = run(tmp_path, "\nimport broken\n", **package(tmp_path, "broken", text, wants))
    assert rc == 2 and f"mpt.capture: train.py line 2: found {finding}" in said and "site-packages/broken/__init__.py line 1)" in said, said
    assert remedy in said and "--traceback" in said, said


@pytest.mark.parametrize("words, missing", [(["nosuch.py"], "nosuch.py"), (["-m", "nosuch.module"], "-m nosuch.module")])
def test_a_missing_script_is_named(tmp_path, words, missing):
    rc, _, said = capture(tmp_path, "python", *words)
    assert rc == 2 and f"{missing}: found no such" in said and "runpy" not in said, said


@pytest.mark.parametrize("text, what", [
    ("import sys\nsys.exit(3)", "train.py: found that it ended itself with exit code 3"),
    ("import sys\nsys.exit('no data')", "train.py: found that it ended itself with 'no data'"),
    ("import os\nos._exit(7)", "train.py: found that its process ended by exit code 7"),
    ("import os\nos.abort()", "found that its process ended by signal SIGABRT"),
    ("x = (", "train.py line 1: found SyntaxError"),
    ("open('config.yaml')", "train.py line 1: found FileNotFoundError"),
    ("", "train.py: found that it ended before a framework had parsed"),
])
def test_a_script_that_ends_itself_is_told_so(tmp_path, text, what):
    rc, _, said = run(tmp_path, text)
    assert rc == 2 and what in said.replace(f"python {tmp_path}/", ""), said


# Scripts of the shell.

TRAIN = "open('trained.txt', 'w').write('x')\nimport os\nos.remove('kept.txt')\n"


@pytest.mark.parametrize("name", ["bash", "sh", "./run.sh"])
def test_a_shell_script_is_read_and_not_run(tmp_path, name):
    (tmp_path / "kept.txt").write_text("kept")
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "run.sh").write_text("#!/bin/bash\nrm -f kept.txt\ntouch before\npython train.py\ntouch after\n")
    (tmp_path / "run.sh").chmod(0o755)
    rc, _, said = capture(tmp_path, *([name] if name[0] == "." else [name, "run.sh"]))
    assert rc == 2 and "train.py line 3: found that it would remove kept.txt" in said, said
    assert "run.sh was read, not run: line 4 is the command; its lines 2 (rm), 3 (touch), 5 (touch) were left out" in said.replace("./run", "run"), said


def found(text, *arguments, **environment):
    return shell.find(["bash", "-c", text, "run.sh", *arguments], environment, "/work folder")


@pytest.mark.parametrize("text, words", [
    ('A=(--a "b c" # no\n  --d)\ntorchrun "${A[@]}" x.py "$@" ${B:-e} $NONE', ["torchrun", "--a", "b c", "--d", "x.py", "1", "2 3", "e"]),
    ("N=2; W=$((N * 8 + 1))\nF=\"\n --w $W \\\n --v 'k'\"\ntorchrun x.py $F 2>&1 | tee log", ["torchrun", "x.py", "--w", "17", "--v", "'k'"]),
    ("export A=1\ncat <<END > f\ntorchrun no.py\nEND\nexec env B=2 nohup torchrun x.py $A '$A' \"\\$A\" &\nwait", ["torchrun", "x.py", "1", "$A", "$A"]),
    ("f() { rm x; }\nif [ -z \"$X\" ]; then Y=1; fi\ncd src && srun -N 2 torchrun --nnodes 2 x.py $1", ["torchrun", "--nnodes", "2", "x.py", "1"]),
    ('D=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)\nA=a\nA+=b\npython "$D"/x.py $A', ["python", "/work folder/x.py", "ab"]),
])
def test_words_are_the_shell_s(text, words):
    assert found(text, "1", "2 3").words == words


def test_words_are_as_bash_makes_them(tmp_path):
    """Bash is asked about a script of assignments, with printf in the place of torchrun."""
    text = ('N=2\nA=(--a "b  c" d\'e f\'g)\nL="x  y"\nE=\nunset Q\n'
            'torchrun x.py "${A[@]}" $L "$L" ${N}0 "${Q:-a b}" ${Q:-a b} $((N*3-1)) "$#" "$@" \'$N\' \\$N a\\ b "" $E "$E" ${A[1]} "a"\'b\'c --k="v w" \\\n  last # no')
    printed = subprocess.run(["bash", "-c", text.replace("torchrun x.py", "printf '%s\\n'"), "run.sh", "1", "2 3"], capture_output=True, text=True, check=True).stdout
    assert found(text, "1", "2 3").words[2:] == printed.split("\n")[:-1]


def test_what_a_script_exports_reaches_the_command():
    one = found("export A=1 B=2\nC=3\ncd sub\nD=4 python x.py")
    assert one.environment == {"A": "1", "B": "2", "D": "4"} and one.folder == "/work folder/sub"


@pytest.mark.parametrize("text, what", [
    ("torchrun --nnodes $(date) x.py", "line 1: found a word behind --nnodes that only a run knows: $(date) is not run"),
    ("\ntorchrun --node-rank $RANKS x.py", "line 2: found a word behind --node-rank that only a run knows: RANKS is not set: set it before"),
    ("if true; then\n  torchrun x.py\nfi", "line 2: found torchrun inside of if"),
    ("for i in 1 2; do A=$i; done\ntorchrun x.py --lr $A", "A is set in line 1, inside of for"),
    ("false || torchrun x.py", "found torchrun inside of ||"),
    ("torchrun a.py\ntorchrun b.py", "found 2 commands that may start the training, in lines 1 (torchrun), 2 (torchrun)"),
    ("srun -n 8 python x.py", "found that srun starts python, and how many times only a run knows"),
    ("echo torchrun", "found no command that starts a training"),
    ("cd $(mktemp -d)\npython x.py", "found a folder that only a run knows"),
    ("A=aaaa;" + "A=$A$A;" * 40 + "torchrun x.py $A", "has over 1048576 characters"),
])
def test_what_only_a_run_knows_is_refused(text, what):
    with pytest.raises(launchers.Refused) as refused:
        found(text)
    assert what in str(refused.value) and ("Give the command itself" in str(refused.value) or "give" in str(refused.value))


@pytest.mark.parametrize("words, what", [
    (["make", "train"], "make train: found no command that mpt.capture can read; expected one of torchrun"),
    (["srun", "-n", "8", "python", "x.py"], "found that srun starts python"),
    (["sh", "-c", "true"], "found no command that starts a training"),
    (["bash", "none.sh"], "none.sh: found that it cannot be read"),
    (["python", "-c", "print()"], "found no command that mpt.capture can read"),
])
def test_other_commands_are_refused(tmp_path, words, what):
    rc, _, said = capture(tmp_path, *words)
    assert rc == 2 and what in said, said


def test_launchers_are_read(tmp_path):
    job = launchers.job_of(["python", "train.py", "--lr", "1"])
    assert (job.script, job.is_module, job.arguments, job.ranks) == ("train.py", False, ["--lr", "1"], 1)
    assert launchers.job_of(["python3", "-u", "-X", "dev", "-m", "pack.train", "-x"])[:3] == ("pack.train", True, ["-x"])
    done = subprocess.run([sys.executable, "-m", "mpt.capture"], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2 and "no command" in done.stderr


def test_a_framework_is_captured_before_the_script_goes_on(tmp_path):
    """A stand-in under torchtitan's name; its own code is asked in tests/frameworks. Nothing behind the capture runs."""
    package(tmp_path, "torchtitan", "")
    site = tmp_path / "installed/site-packages/torchtitan"
    (site / "config").mkdir()
    (site / "config/__init__.py").write_text("class Configurable:\n    class Config:\n        pass\n")
    (site / "config/manager.py").write_text("""
import dataclasses, types
@dataclasses.dataclass
class Config:
    model_spec: object
class ConfigManager:
    def parse_args(self):
        model = types.SimpleNamespace(traverse=lambda *_, **__: [])
        return Config(types.SimpleNamespace(name="torchtitan/llama3", flavor="8B", model=model))
""")
    (tmp_path / "train.py").write_text("from torchtitan.config.manager import ConfigManager\nopen('log.txt', 'w').write('x')\n"
                                       "try:\n    ConfigManager().parse_args()\nfinally:\n    import os\n    os.remove('train.py')\n")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(site.parent), os.environ.get("PYTHONPATH")]))}
    done = subprocess.run([sys.executable, "-m", "mpt.capture", "--", "python", "train.py"], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    captured = json.loads(pathlib.Path(tmp_path, "captured.json").read_text())
    assert captured["framework"] == "torchtitan" and "model_registry('8B')" in captured["files"]["captured.py"]
    assert "until ConfigManager.parse_args(); nothing was trained, and no file changed. What it wrote went to a temporary folder, which is gone: log.txt." in \
        captured["run"]["executed"]
    assert not (tmp_path / "log.txt").exists() and (tmp_path / "train.py").exists()
