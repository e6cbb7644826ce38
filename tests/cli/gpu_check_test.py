#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A rehearsal of scripts/gpu-check, from its archive to its report.

Usage: gpu_check_test.py [PROGRAMS MODULE TESTS]

With PROGRAMS (the folder of mpt-plan, mpt-run and mpt-profile), MODULE (the GPU module over the stand-ins for CUDA and NCCL)
and TESTS (the tests of the GPU's device over them) all parts run as on a machine with a GPU, on tiny models. Scripts stand
for NVIDIA's tools and PyTorch. What the check does about programs that hang or crash is tried with scripts alone.
"""

import concurrent.futures
import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import tarfile
import tempfile

SOURCES = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SMI = r"""
case "$*" in
  *clocks.sm*) while :; do echo "1755, 640.5, 61, 40960"; sleep 0.2; done;;
  *) echo 'NVIDIA H100 80GB HBM3, 580.1, 81559 MiB, 1980 MHz, 700 W';;
esac
"""
TORCH = """
import json, sys, time
for backend in map(str.strip, sys.stdin):
    print('compiling')
    time.sleep(0.5)
    print(json.dumps({'attention': backend, 'tokens_per_s': 1000.0, 'torch': '2.9', 'cudnn': 91900}), flush=True)
"""
SANITIZER = r"""
while [ "$1" != --error-exitcode ]; do shift; done
shift 2
"$@" && echo "========= ERROR SUMMARY: 0 errors"
"""
RUN = r"""
[ "$1" = --version ] && { echo "mpt-run 0"; exit 0; }
log=
while [ $# -gt 0 ]; do [ "$1" = --log ] && log=$2; shift; done
for i in 1 2 3 4 5 6; do
  echo '{"step": '$i', "loss": 2.5, "step_time_s": 0.5, "model_flop_utilization": 0.4, "ranks": [{"peak_bytes": 1073741824}]}'
done > "$log"
"""
PLAN = r"""
while [ $# -gt 0 ]; do [ "$1" = -o ] && out=$2; shift; done
echo '{"prediction": {"step_time_s": 0.4, "memory": [{"peak_bytes": 1073741824}]}}' > "$out"
"""
TESTS = r"""
filter=$1
for name in Types/CudaDeviceTest.Linear/Bfloat16 Types/CudaDeviceTest.Attention/Bfloat16 Layouts/CudaTraining.Fits/OneRank; do
  case "$filter" in *-*$name*) continue;; esac
  echo "[ RUN      ] $name"
  WHAT_ATTENTION_DOES
  echo "[       OK ] $name (1 ms)"
done
"""


def script(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write("#!/bin/sh\n" + text)
    os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)


def build_of_scripts(folder, in_attention):
    for name, text in (("bin/mpt-run", RUN), ("bin/mpt-plan", PLAN), ("bin/mpt-profile", "exit 1"), ("bin/libmpt_cuda.so", ""),
                       ("tests/runtime_cuda_test", TESTS.replace("WHAT_ATTENTION_DOES", f"case $name in *Attention*) {in_attention};; esac"))):
        script(os.path.join(folder, "build", name), text)
    script(os.path.join(folder, "tools/nvidia-smi"), SMI)


def unpack(folder):
    """What --pack makes, as it would be on the machine with the GPU."""
    done = subprocess.run([sys.executable, os.path.join(SOURCES, "scripts/gpu-check"), "--pack", "gpu.tar.xz", "--binaries", "build"],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=folder, check=False)
    expect(done.returncode == 0 and "wrote" in done.stdout, "--pack", done.stdout)
    with tarfile.open(os.path.join(folder, "gpu.tar.xz")) as packed:
        packed.extractall(folder)


def check(folder, *options, program="gpu-check/scripts/gpu-check", **environment):
    done = subprocess.run([sys.executable, program, "--output", "out", "--quick", *options], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=800, cwd=folder, check=False,
                          env={**os.environ, "PATH": os.path.join(folder, "tools") + ":" + os.environ["PATH"], **environment})
    report = os.path.join(folder, "out/gpu.md")
    return done, open(report).read() if os.path.exists(report) else ""


def expect(condition, what, text):
    if not condition:
        sys.exit(f"{what}:\n{text[-6000:]}")


def rehearse_with_scripts(in_attention, *options):
    with tempfile.TemporaryDirectory() as folder:
        build_of_scripts(folder, in_attention)
        unpack(folder)
        return check(folder, *options)


def a_test_hangs():
    """The others are run without it, and the next part, too."""
    done, report = rehearse_with_scripts("sleep 300", "--only", "kernels,ranks", "--longest-test", "2")
    expect(done.returncode == 1 and "Attention/Bfloat16: it hangs" in report, "a test that hangs", report)
    expect("2 tests passed" in report and "pipeline parallel: losses of 3 steps" in report, "parts after one that hangs", report)


def programs_fail():
    """One in the middle, one at once."""
    done, report = rehearse_with_scripts("exit 7", "--only", "kernels,profiles,ranks")
    expect(done.returncode == 1 and "the program ended in it, 7" in report, "a test that ends the program", report)
    expect("FAILED: profile gpt2-1.5b" in report and "pipeline parallel" in report, "parts after one that fails", report)


def no_time_is_left():
    done, report = rehearse_with_scripts("sleep 300", "--only", "kernels,ranks", "--budget", "7")
    expect(done.returncode == 1 and "no time was left" in report, "no time", report)


def arguments_are_wrong():
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(SOURCES, "scripts/gpu-check")
        done, _ = check(folder, "--only", "kernel", program=program)
        expect(done.returncode == 2 and "expected some of machine, kernels" in done.stdout, "an unknown part", done.stdout)
        for text, words in (('{"smal": ["gpt2-124m", 8, 1, 1]}', "unknown: smal"), ('{"small": ["gpt2-124m", 8]}', "values to unpack"),
                            ('{"small": ["gpt2-124m", 8, 1, 0]}', "a size below 1"), ("[", "Expecting value")):
            with open(os.path.join(folder, "trainings.json"), "w") as file:
                file.write(text)
            done, _ = check(folder, "--trainings", "trainings.json", program=program)
            expect(done.returncode == 2 and "--trainings" in done.stdout and words in done.stdout, text, done.stdout)


def write_trainings(folder):
    """Models of some ten thousand parameters: the stand-in interprets each thread of each kernel."""
    for name, layers in (("little-gpt", 2), ("little-llama", 4)):
        with open(os.path.join(SOURCES, "models/zoo", name.replace("little", "tiny") + ".json")) as file:
            model = json.load(file)
        del model["source"]
        kind = model["layers"]["kinds"]["attention_mlp"]
        kind["attention"].update(heads=2, kv_heads=2, head_dim=16)
        kind["mlp"]["ffn_hidden"] = 48
        model["layers"]["order"][0]["repeat"] = layers
        with open(os.path.join(folder, name + ".json"), "w") as file:
            json.dump({**model, "name": name, "hidden": 32}, file)
    kind["moe"] = {"experts": 4, "experts_per_token": 2, "expert": kind.pop("mlp")}
    model["layers"] = {"kinds": {"attention_experts": kind}, "order": [{"repeat": 2, "of": ["attention_experts"]}]}
    with open(os.path.join(folder, "little-experts.json"), "w") as file:
        json.dump({**model, "name": "little-experts", "hidden": 32}, file)
    gpt, llama = "little-gpt.json", "little-llama.json"
    with open(os.path.join(folder, "trainings.json"), "w") as file:
        json.dump({"small": [gpt, 8, 1, 1], "gpt": [gpt, 16, 1, 1], "llama": [gpt, 16, 1, 2], "long": [llama, 16, 1, 1],
                   "ranks": [llama, 8, 1, 4], "windows": [llama, 16, 1, 1, 2], "latent": [gpt, 16, 1, 1, 1], "experts": ["little-experts.json", 8, 1, 1],
                   "processes": [llama, 8, 1, 4], "spread": ["little-experts.json", 8, 1, 4], "full": [gpt, 16, 1, 1]}, file)


def build_of_programs(folder, programs, module, tests):
    os.makedirs(os.path.join(folder, "build/bin"))
    for file in [os.path.join(programs, name) for name in ("mpt-plan", "mpt-run", "mpt-profile")] + [module]:
        os.symlink(os.path.abspath(file), os.path.join(folder, "build/bin", os.path.basename(file)))
    # Where kernels have names: a stripped program has none.
    script(os.path.join(folder, "build/tests/runtime_cuda_test"), f'exec "{os.path.abspath(tests)}" "$@"')
    script(os.path.join(folder, "tools/nvidia-smi"), SMI)
    script(os.path.join(folder, "tools/compute-sanitizer"), SANITIZER)


def unpacked_programs(folder, programs, module, tests):
    build_of_programs(folder, programs, module, tests)
    unpack(folder)
    write_trainings(folder)
    with open(os.path.join(folder, "gpu-check/benchmarks/torch_gpu.py"), "w") as stand_in:
        stand_in.write("import os\nexec(os.environ['TORCH'])\n")


def rehearse(folder, *options, torch=TORCH):
    # A few tests of the device: runtime_cuda_on_cpu_test runs them all.
    return check(folder, "--trainings", "trainings.json", *options, TORCH=torch, GTEST_TOTAL_SHARDS="100", GTEST_SHARD_INDEX="0")


def part(report, title):
    return report.split(f"## {title}\n")[1].split("\n## ")[0]


def rows(report, title):
    """The cells of a part's table, below its head. All lines up to an empty one must be rows."""
    lines = part(report, title).split("\n|", 1)[1].split("\n\n")[0].splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    expect(len({len(row) for row in cells}) == 1 and set(cells[1]) == {"---"}, f"the table of {title}", report)
    return cells[2:]


def everything_passes(folder):
    done, report = rehearse(folder, "--budget", "700", "--patience", "6")
    expect(done.returncode == 0 and "everything passed" in done.stdout, "all parts", report + done.stdout[-500:])
    expect("NVIDIA H100" in report and "CPU kernels:" in report and "Attention:" in report, "the machine", report)
    for title in ("Kernels and layouts against the CPU", "Own attention against the CPU"):
        expect(" tests passed" in part(report, title) and " 0 tests" not in part(report, title), title, report)
    trainings = [("Training a Llama", "catalog", 3, [["little-gpt", "16", "1 x 2"]]),
                 ("Models cut to a few layers", "catalog", 0, [["little-llama-2-layers", "16", "1 x 1"], ["little-gpt-1-layers", "16", "1 x 1"],
                                                               ["little-experts", "8", "1 x 1"]]),
                 ("A full GPU", "catalog", 0, [["little-gpt", "16", "1 x 1"]]),
                 ("Other trainings", "catalog", 1, [["little-gpt", "16", "1 x 1"], ["little-gpt", "8", "1 x 1"], ["little-llama", "16", "1 x 1"]]),
                 ("Training as predicted from the profile", "profile", 1, [["little-gpt", "16", "1 x 1"], ["little-gpt", "16", "1 x 2"]])]
    for title, source, turns, models in trainings:
        measured = rows(report, title)
        expect([row[:3] for row in measured] == models, title, report)
        for row in measured:
            expect(float(row[3].split()[0]) > 0 and row[5] == source and row[10] == "40.00 GiB", title, report)
            expect(row[11:13] == ["1,000"] * 2 and float(row[13][:-1]) > 0 if turns else row[11:] == ["-"] * 3, title, report)
        expect(part(report, title).count("1,755 MHz, 640 W, 61 C at most") == len(models) * (3 if turns else 1), title + ": the driver", report)
    for backend in ("cudnn", "flash"):
        expect(f"PyTorch with {backend}: 1,000 to 1,000 tokens/s in 3 turns" in part(report, "Training a Llama"), backend, report)
    for layout in ("tensor parallel", "pipeline parallel", "V-shaped pipeline parallel", "data parallel", "interleaved, ZeRO 1",
                   "experts on two ranks"):
        expect(f"\n- {layout}: losses of 3 steps within " in report, layout, report)
    expect(len(rows(report, "Training in fp8")) == 1, "fp8", report)
    compared = rows(report, "One way against the other")
    expect(len(compared) == 4 and all(float(row[6]) < 1e-2 for row in compared), "choices", report)
    expect("0 kernels traced, in profile-little-gpt-16.json" in part(report, "Profiles"), "the profile", report)
    expect(part(report, "compute-sanitizer").count("0 errors") == 3, "sanitizers", report)
    return report


def a_program_hangs(folder):
    """So does a process that it has started, which holds its output open. What was measured before is in the report."""
    done, report = rehearse(folder, "--only", "training", "--budget", "40", torch="import subprocess; subprocess.run(['sleep', '900'])")
    expect(done.returncode == 1 and "FAILED: PyTorch little-gpt, cudnn: no answer in time" in report, "a program that hangs", report)
    expect([row[11:] for row in rows(report, "Training a Llama")] == [["-", "-", "-"]], "the row without PyTorch", report)


def the_driver_never_returns(folder):
    """A call of it, on the second of two ranks, while others are kept out: both end, and say where."""
    packed = os.path.join(folder, "gpu-check")
    plan, text = os.path.join(folder, "plan.json"), os.path.join(folder, "text.txt")
    made = subprocess.run([os.path.join(packed, "bin/mpt-plan"), "--model", os.path.join(folder, "little-llama.json"), "--cluster", "dgx-h100:1",
                           "--ranks", "2", "--framework", "mpt", "--seq", "8", "--global-batch", "4", "--micro-batch", "1", "--pp", "2", "--tp", "1",
                           "--dp", "1", "-o", plan], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    expect(made.returncode == 0, "a plan", made.stdout)
    with open(text, "w") as file:
        file.write("what is read in training\n" * 400)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = str(listening.getsockname()[1])
    ranks = []
    for rank in range(2):
        stuck = {"CUDA_ON_CPU_STUCK": "product"} if rank == 1 else {}
        ranks.append(subprocess.Popen([os.path.join(packed, "bin/mpt-run"), plan, "--data", text, "--steps", "2", "--device", "cuda", "--timeout", "4"],
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                      env={**os.environ, "RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
                                           "NCCL_HOSTID": f"host{rank}", **stuck}))
    outputs = [rank.communicate(timeout=200)[0] for rank in ranks]
    expect([rank.returncode for rank in ranks] == [1, 1] and "rank 0, step 1, " in outputs[0], "ranks of a driver that never returns", "".join(outputs))
    expect("rank 1, step 1, forward" in outputs[1] and "a call of the GPU's driver has not returned for" in outputs[1] and
           "the process ends now" in outputs[1], "the rank in the driver", outputs[1])


def the_module_is_damaged(folder):
    with open(os.path.join(folder, "gpu-check/bin/libmpt_cuda.so"), "w") as module:
        module.write("no library")
    done, report = rehearse(folder, "--only", "training,profiles", torch="print('no PyTorch here'); raise SystemExit(3)")
    expect(done.returncode == 1 and report.count("file too short)\n    build it again") == 2, "a module that is damaged", report)
    expect("(little-gpt, PyTorch cudnn: no PyTorch here)" in report and not rows(report, "Training a Llama"), "the table without rows", report)


def rehearsed(scenario, source):
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(source, folder, dirs_exist_ok=True)
        return scenario(folder)


def main():
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor() as pool:
        scenarios = [a_test_hangs, programs_fail, no_time_is_left, arguments_are_wrong]
        if len(sys.argv) > 1:
            unpacked_programs(folder, *sys.argv[1:4])
            scenarios += [lambda s=s: rehearsed(s, folder) for s in (a_program_hangs, the_driver_never_returns, the_module_is_damaged,
                                                                      everything_passes)]
        # Most of the time most of them wait.
        for outcome in [pool.submit(scenario) for scenario in scenarios]:
            print(outcome.result() or "", end="")
    print("gpu-check: archive, report, a part that hangs, one that fails, no time left")


main()
