#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A rehearsal of scripts/gpu-check, from its archive to its report, with programs that only answer as the real ones do.

Once everything passes, once a part hangs, once one fails, once no time is left.
"""

import os
import re
import stat
import subprocess
import sys
import tarfile
import tempfile

SOURCES = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SMI = "echo 'NVIDIA H100 80GB HBM3, 580.1, 81559 MiB, 1980 MHz, 700 W'"
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


def build(folder, in_attention):
    for name, text in (("bin/mpt-run", RUN), ("bin/mpt-plan", PLAN), ("bin/mpt-profile", "exit 1"), ("bin/libmpt_cuda.so", ""),
                       ("tests/runtime_cuda_test", TESTS.replace("WHAT_ATTENTION_DOES", f"case $name in *Attention*) {in_attention};; esac"))):
        script(os.path.join(folder, "build", name), text)
    script(os.path.join(folder, "tools/nvidia-smi"), SMI)


def unpack(folder):
    """What --pack makes, as it would be on the machine with the GPU."""
    archive = os.path.join(folder, "gpu.tar.xz")
    done = subprocess.run([sys.executable, os.path.join(SOURCES, "scripts/gpu-check"), "--pack", archive, "--binaries",
                           os.path.join(folder, "build")], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    expect(done.returncode == 0 and "wrote" in done.stdout, "--pack", done.stdout)
    with tarfile.open(archive) as packed:
        packed.extractall(folder)
    return os.path.join(folder, "gpu-check/scripts/gpu-check")


def check(folder, program, *options):
    output = os.path.join(folder, "out")
    done = subprocess.run([sys.executable, program, "--output", output, "--quick", *options], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=120, check=False,
                          env={**os.environ, "PATH": os.path.join(folder, "tools") + ":" + os.environ["PATH"]})
    report = os.path.join(output, "gpu.md")
    return done, open(report).read() if os.path.exists(report) else ""


def expect(condition, what, text):
    if not condition:
        sys.exit(f"{what}:\n{text[-4000:]}")


def rehearse(in_attention, *options):
    with tempfile.TemporaryDirectory() as folder:
        build(folder, in_attention)
        return check(folder, unpack(folder), *options)


def main():
    done, report = rehearse(":", "--only", "machine,kernels,training")
    expect(done.returncode == 0 and "everything passed" in done.stdout, "all pass", done.stdout)
    expect("NVIDIA H100" in report and "Attention:" in report and "3 tests passed" in report, "the report", report)
    expect(re.search(r"\| llama3.2-1b \| 2048 \| 4 x 8 \| 500.0 ms \| 400.0 ms \|", report), "the training's row", report)

    # A test hangs: the others are run without it, and the next part, too.
    done, report = rehearse("sleep 300", "--only", "kernels,ranks", "--longest-test", "2")
    expect(done.returncode == 1 and "Attention/Bfloat16: it hangs" in report, "a test that hangs", report)
    expect("2 tests passed" in report and "pipeline parallel: losses of 10 steps" in report, "parts after one that hangs", report)

    # A program ends in the middle, and one fails at once.
    done, report = rehearse("exit 7", "--only", "kernels,profiles,ranks")
    expect(done.returncode == 1 and "the program ended in it, 7" in report, "a test that ends the program", report)
    expect("FAILED: profile gpt2-1.5b" in report and "pipeline parallel" in report, "parts after one that fails", report)

    done, report = rehearse("sleep 300", "--only", "kernels,ranks", "--budget", "7")
    expect(done.returncode == 1 and "no time was left" in report, "no time", report)

    with tempfile.TemporaryDirectory() as folder:
        done, _ = check(folder, os.path.join(SOURCES, "scripts/gpu-check"), "--only", "kernel")
        expect(done.returncode == 2 and "expected some of machine, kernels" in done.stdout, "an unknown part", done.stdout)
    print("gpu-check: archive, report, a part that hangs, one that fails, no time left")


main()
