# SPDX-License-Identifier: Apache-2.0
"""mpt.capture with the frameworks themselves: their own commands, stopped at the configuration, and what mpt-plan imports of it.

Usage: capture_test.py PROGRAMS [NAMES]. PROGRAMS is the folder of mpt-plan; NAMES are cases or words for plain.py (default: all whose environment is
installed under build/frameworks, or MPT_FRAMEWORKS).
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from typing import NamedTuple

from sample import sample

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
SCRIPTS = os.path.join(HERE, "capture")
TRAINER = ["train_trainer.py", "--output_dir", "out", "--per_device_train_batch_size", "2", "--gradient_accumulation_steps", "4", "--bf16"]


class Case(NamedTuple):
    environment: str
    command: list
    options: list  # of mpt.capture
    same_as: str  # a file with the same layout when it is imported; may be empty
    layout: dict
    refused: str = ""  # what the refusal says


CASES = {
    # A script of the shell. It calls a stand-in for torchrun.
    "megatron": Case("megatron", ["bash", "run_megatron.sh"], [], "run_megatron.sh", {"tensor": 2, "pipeline": 2, "data": 4, "chunks": 4, "sequence": 4096}),
    # Values of the command line and of the recipe.
    "torchtitan": Case("torchtitan", ["torchrun", "--nproc-per-node=8", "--nnodes=2", "-m", "torchtitan.train", "--module", "llama3", "--config",
                                      "llama3_8b", "--training.local_batch_size", "2", "--parallelism.tensor_parallel_degree", "2"], [], "",
                       {"tensor": 2, "data": 8, "zero": 3, "micro_batch": 2, "recompute": "selective", "sequence": 8192, "global_batch": 16}),
    "bridge": Case("bridge", ["torchrun", "--nproc-per-node", "8", "train_bridge.py"], [], "",
                   {"tensor": 2, "data": 4, "zero": 1, "micro_batch": 1, "sequence": 8192, "global_batch": 128}),
    "automodel": Case("automodel", ["torchrun", "--nproc-per-node", "8", "train_automodel.py", "--step_scheduler.local_batch_size", "4"], [], "",
                      {"tensor": 2, "data": 4, "zero": 3, "micro_batch": 4, "recompute": "full", "sequence": 4096, "global_batch": 64}),
    "trainer": Case("accelerate", ["accelerate", "launch", "--config_file", "fsdp.yaml", *TRAINER], ["--seq", "2048"], "",
                    {"data": 8, "zero": 3, "micro_batch": 2, "recompute": "full", "precision": "bf16", "sequence": 2048, "global_batch": 64}),
    "deepspeed": Case("accelerate", ["torchrun", "--nproc-per-node", "8", *TRAINER, "--deepspeed", "zero3.json"], ["--seq", "2048"], "",
                      {"data": 8, "zero": 3, "micro_batch": 2, "offload_optimizer": True, "sequence": 2048, "global_batch": 64}),
    # Of NeMo 2 the name alone is here, and asked for.
    "nemo": Case("torch", ["python", "train_nemo.py"], [], "", {}, "NeMo 2 (nemo.collections.llm), which MPT cannot capture yet"),
}

# By the word for plain.py, at which line and call the capture ends.
PLAIN = {"loop": "line 22: found that it calls Tensor.backward(), which trains", "step": "found that it calls AdamW.step(), which trains",
         "grad": "found that it calls torch.autograd.grad(), which trains", "save": "found that it calls torch.save()", "file": "found that it calls torch.save()",
         "sharded": "found that it calls torch.distributed.checkpoint.save()", "safetensors": "found that it saves a file of safetensors",
         "reduce": "line 30: found that it calls torch.distributed.all_reduce() for data of several ranks", "loader": "found that it would start a process",
         "spawn": "found that it would start a process"}


def inside(words):
    """mpt.capture on a machine without GPUs, where only stand-ins of compiled extensions are."""
    sys.path.insert(0, HERE)
    import stubs
    name = os.environ["MPT_CASE"]
    extensions = {"megatron": ["transformer_engine", "transformer_engine_torch"],
                  "bridge": ["transformer_engine", "transformer_engine_torch", "nvidia_resiliency_ext", "modelopt", "megatron.energon", "diffusers"]}
    stubs.use(*extensions.get(name, []))
    stubs.gpu("h100")
    if name == "torchtitan":
        stubs.cpu_ranks()
    if name == "automodel":
        stubs.untuned_kernels()
        stubs.older_fsdp()
    if name == "bridge":  # the hub is not reached
        sys.path.insert(0, os.path.join(HERE, "acceptance"))
        import hub
        from megatron.bridge import AutoBridge
        AutoBridge.from_hf_pretrained = classmethod(lambda cls, path, **_: cls.from_hf_config(hub.configuration(path, {})))
    from mpt import capture
    status = capture.main(words)
    sys.stdout.flush()
    os._exit(status)


def imported(program, *words):
    done = subprocess.run([program, "import", *words, "--cluster", "dgx-h100:2", "--time-limit", "5", "--json"], capture_output=True, text=True)
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    plan = json.loads(done.stdout)
    return {**plan["layout"], **plan["workload"]}, done.stderr


def check(name, case, program, folder):
    python = os.path.join(os.environ.get("MPT_FRAMEWORKS", os.path.join(ROOT, "build/frameworks")), case.environment, "bin/python")
    if not os.path.exists(python):
        return "skipped: not installed"
    captured = os.path.join(folder, f"{name}.json")
    environment = {**os.environ, "PYTHONPATH": os.path.join(ROOT, "python"), "MPT_CASE": name, "CUDA_DEVICE_MAX_CONNECTIONS": "1", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run([python, os.path.abspath(__file__), "--inside", "-o", captured, *case.options, "--", *case.command], cwd=SCRIPTS,
                          env=environment, capture_output=True, text=True)
    if case.refused:
        if done.returncode == 0 or os.path.exists(captured) or case.refused not in done.stderr:
            raise AssertionError(f"not refused: {done.stdout}{done.stderr}")
        return "refused by name"
    if done.returncode != 0 or "nothing was trained, and no file changed" not in done.stdout:
        raise AssertionError("\n".join((done.stdout + done.stderr).splitlines()[-12:]))
    layout, notes = imported(program, "--captured", captured)
    wrong = {key: (layout.get(key), value) for key, value in case.layout.items() if layout.get(key) != value}
    if wrong or notes.count("not taken over") > 2:  # defaults are not written
        raise AssertionError(f"found and expected: {wrong}; notes: {notes}")
    if case.same_as:
        theirs, _ = imported(program, os.path.join(SCRIPTS, case.same_as), "--gpus", "16")
        if theirs != layout:
            raise AssertionError({key: (layout.get(key), value) for key, value in theirs.items() if layout.get(key) != value})
    return "captured" + (f"; {' '.join(notes.split())}" if notes else "")


def state(folder):
    return {os.path.join(at, name): open(os.path.join(at, name), "rb").read() for at, _, names in os.walk(folder) for name in names}


def check_plain(word, folder):
    """Ends at its first call of the kind, by itself and by a shell script, and leaves each file as it was."""
    python = os.path.join(os.environ.get("MPT_FRAMEWORKS", os.path.join(ROOT, "build/frameworks")), "torch/bin/python")
    if not os.path.exists(python):
        return "skipped: not installed"
    work = os.path.join(folder, word)
    os.mkdir(work)
    shutil.copy(os.path.join(SCRIPTS, "plain.py"), work)
    for name, text in (("checkpoint.pt", "kept"), ("run.sh", f"rm checkpoint.pt\ntorchrun --nproc-per-node 8 plain.py {word}\nrm run.sh\n")):
        with open(os.path.join(work, name), "w", encoding="utf-8") as file:
            file.write(text)
    before = state(work)
    command = ["bash", "run.sh"] if word == "loop" else ["torchrun", "--nproc-per-node", "8", "plain.py", word]
    done = subprocess.run([python, "-m", "mpt.capture", "--", *command], cwd=work, env={**os.environ, "PYTHONPATH": os.path.join(ROOT, "python")},
                          capture_output=True, text=True)
    said = done.stderr
    if state(work) != before or os.path.isdir(os.path.join(work, "logs")) or "went on" in done.stdout:
        raise AssertionError(f"{sorted(os.listdir(work))} differ from {sorted(before)}; {done.stdout}{said}")
    if done.returncode != 2 or PLAIN[word] not in said or "rank 0 of 8" not in said or "which is gone: logs, logs/train.log" not in said:
        raise AssertionError(f"{PLAIN[word]} is not said, but: {said}")
    return "ended at " + PLAIN[word].partition("found that it ")[2]


def main():
    program = os.path.join(os.path.abspath(sys.argv[1]), "mpt-plan")
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for name in sys.argv[2:] or sample([*CASES, *PLAIN]):
            try:
                print(f"{name}: {check_plain(name, folder) if name in PLAIN else check(name, CASES[name], program, folder)}", flush=True)
            except AssertionError as wrong:
                failed += 1
                print(f"{name}: FAILED: {wrong}", flush=True)
    sys.exit(failed > 0)


if __name__ == "__main__":
    if sys.argv[1] == "--inside":
        inside(sys.argv[2:])
    main()
