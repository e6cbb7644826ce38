# SPDX-License-Identifier: Apache-2.0
"""The archive that scripts/gpu-check takes to a machine with a GPU, and the folders of libraries there."""

import glob
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ARCHIVE_LIMIT = 64 << 20  # bytes: the limit of lent machines
PROGRAMS = ("bin/mpt-plan", "bin/mpt-run", "bin/mpt-profile", "bin/libmpt_cuda.so", "tests/runtime_cuda_test")
# Libraries that such a machine has: those of every Linux, and NVIDIA's from PyTorch's wheels.
THERE = re.compile(r"^(ld-linux|libc\.|libm\.|libdl\.|librt\.|libpthread\.|libstdc\+\+|libgcc_s|libz\.|linux-vdso|libcu|libnccl|libnvidia|libnv)")


def library_folders(build):
    """The folders of NVIDIA's libraries: the archive's, the wheels installed with PyTorch, a toolkit."""
    wheels = []
    for folder in sys.path:
        wheels += sorted(glob.glob(os.path.join(folder, "nvidia", "*", "lib")))
    toolkit = ["/usr/local/cuda/lib64", "/usr/local/cuda/extras/CUPTI/lib64"]
    return [os.path.join(build, "lib"), *wheels, *filter(os.path.isdir, toolkit), *filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(":"))]


def dependencies(file, environment):
    """Name and path of each library that a program needs; the path is empty if it was not found."""
    output = subprocess.run(["ldd", file], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment).stdout
    pairs = [line.split("=>") for line in output.splitlines() if "=>" in line]
    return [(name.strip(), "" if "not found" in path else path.split("(")[0].strip()) for name, path in pairs]


def without_caches(member):
    return None if "__pycache__" in member.name else member


def pack(options):
    """One archive of programs, the libraries that no wheel has, and the files that the parts read."""
    build = options.binaries or os.path.join(ROOT, "build/release")
    missing = [name for name in PROGRAMS if not os.path.exists(os.path.join(build, name))]
    if missing:
        print(f"gpu-check: {build} has no {', '.join(missing)}\n    build them: cmake --build {build} --target "
              "mpt-plan mpt-run mpt-profile mpt_cuda runtime_cuda_test", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder, tarfile.open(options.pack, "w:xz", preset=1) as archive:
        libraries = {}
        for name in PROGRAMS:
            stripped = os.path.join(folder, os.path.basename(name))
            shutil.copy(os.path.join(build, name), stripped)
            subprocess.run(["strip", stripped], stderr=subprocess.DEVNULL)
            archive.add(stripped, "gpu-check/" + name)
            libraries.update((n, p) for n, p in dependencies(os.path.join(build, name), None) if p and not THERE.match(n)
                             and not n.startswith("libmpt"))
        for name, path in libraries.items():
            archive.add(os.path.realpath(path), f"gpu-check/lib/{name}")
        for name in ("scripts/gpu-check", "scripts/gpu_pack.py", "scripts/gpu_programs.py", "scripts/gpu_turns.py", "benchmarks/torch_gpu.py",
                     "tests/support/flat_model.py", "models/zoo", "docs"):
            archive.add(os.path.join(ROOT, name), "gpu-check/" + name, filter=without_caches)
    size = os.path.getsize(options.pack)
    print(f"wrote {options.pack}: {size / 2**20:.1f} MiB, with {', '.join(sorted(libraries)) or 'no libraries'}")
    if size <= ARCHIVE_LIMIT:
        return 0
    print(f"gpu-check: the archive is larger than {ARCHIVE_LIMIT >> 20} MiB\n    build for one kind of GPU: "
          "-DMPT_CUDA_ARCHITECTURES=90a-real", file=sys.stderr)
    return 1
