# SPDX-License-Identifier: Apache-2.0
"""Launchers: torchrun's own parser reads what the scripts start; shells read the scripts; Kubernetes' schemas read its objects.

Programs that would start processes are stand-ins (launching.py). Slurm has no schema: its options are compared with a list.
"""

import os
import re
import tempfile

import launching
from judging import judge

import stubs  # noqa: E402

stubs.use()
import kubernetes_validate  # noqa: E402
import yaml  # noqa: E402
from torch.distributed.run import get_args_parser  # noqa: E402

# What each script starts, besides the ranks.
SCRIPTS = {"run_megatron.sh": "pretrain_gpt.py", "run_torchtitan.sh": "torchtitan.train", "run_automodel.sh": "nemo_automodel.cli.app"}
# Options of sbatch, and the form of their values (Slurm's manual page of sbatch).
SBATCH = {"job-name": r"[A-Za-z0-9_.-]+", "nodes": r"[1-9][0-9]*", "ntasks-per-node": "1", "gpus-per-node": r"[1-9][0-9]*", "exclusive": None}


def ranks_of_nodes(c):
    """Processes of each operating system, in order: a node may be several of them (NVL72)."""
    cluster = c.plan["cluster"]
    per_node, left, counts = min(cluster.get("devices_per_host") or cluster["devices_per_node"], c.ranks), c.ranks, []
    while left > 0:
        counts.append(min(per_node, left))
        left -= per_node
    return counts


def compare_start(c, what, started, node, address):
    """What torchrun reads in the command that a node starts."""
    counts = ranks_of_nodes(c)
    words = get_args_parser().parse_args(started["arguments"])
    c.same(f"{what}: nodes", str(len(counts)), words.nnodes)
    c.same(f"{what}: processes of node {node}", str(counts[node]), words.nproc_per_node)
    if words.rdzv_endpoint:
        c.same(f"{what}: where nodes meet", address, words.rdzv_endpoint)
    else:
        c.same(f"{what}: number of node {node}", node, words.node_rank)
        c.same(f"{what}: where nodes meet", address, f"{words.master_addr}:{words.master_port}")
    return words


def check_scripts(folder, c):
    nodes = len(ranks_of_nodes(c))
    for script, program in SCRIPTS.items():
        path = os.path.join(folder, script)
        launching.read_by_shells(path)
        for node in sorted({0, nodes - 1}):
            environment = {"NODE_RANK": str(node), "MASTER_ADDR": "first", "MASTER_PORT": "4711"}
            (started,) = launching.run(["bash", path, "--mine", "two words"], environment)
            words = compare_start(c, script, started, node, "first:4711")
            c.same(f"{script}: what it starts", program, words.training_script)
            c.same(f"{script}: the user's options come last", ["--mine", "two words"], words.training_script_args[-2:])
            files = [word.rpartition("=")[2] for word in words.training_script_args if word.endswith((".yaml", "config.json"))]
            c.same(f"{script}: files are found", [], [word for word in files if not os.path.isfile(word)])
        (started,) = launching.run(["bash", path], {})
        compare_start(c, f"{script} alone", started, 0, "127.0.0.1:29500")


def check_slurm(folder, c):
    path, nodes = os.path.join(folder, "job.sbatch"), len(ranks_of_nodes(c))
    launching.read_by_shells(path)
    with open(path, encoding="utf-8") as file:
        options = dict((re.fullmatch(r"#SBATCH --([a-z-]+)(?:=(.*))?", line.rstrip()).groups()) for line in file if line.startswith("#SBATCH"))
    for name, value in options.items():
        known = name in SBATCH and (value is None if SBATCH[name] is None else re.fullmatch(SBATCH[name], value or "") is not None)
        c.same(f"job.sbatch: --{name}={value}", True, known)
    c.same("job.sbatch: nodes", str(nodes), options["nodes"])
    c.same("job.sbatch: GPUs of a node", str(ranks_of_nodes(c)[0]), options["gpus-per-node"])
    environment = {"SLURM_JOB_NUM_NODES": str(nodes), "SLURM_JOB_NODELIST": "node[0-9]", "SLURM_JOB_ID": "17"}
    started = launching.run(["bash", path, "train.py", "two words"], environment)
    for node, one in enumerate(started):
        words = compare_start(c, "job.sbatch", one, node, "node0:29500")
        c.same("job.sbatch: the program", ["train.py", "two words"], [words.training_script, *words.training_script_args])
    c.same("job.sbatch: torchrun on each node", nodes, len(started))
    started = launching.run(["bash", path, os.path.join(folder, "run_megatron.sh"), "--mine"], environment)
    c.same("job.sbatch: a script on each node", nodes, len(started))
    for node, one in enumerate(started):
        compare_start(c, "run_megatron.sh under Slurm", one, node, "node0:29500")


def check_kubernetes(folder, c):
    with open(os.path.join(folder, "job.yaml"), encoding="utf-8") as file:
        service, job = yaml.safe_load_all(file)
    for one in (service, job):
        kubernetes_validate.validate(one, kubernetes_validate.latest_version(), strict=True)
    counts, (container,) = ranks_of_nodes(c), job["spec"]["template"]["spec"]["containers"]
    c.same("job.yaml: nodes", [len(counts)] * 2, [job["spec"]["completions"], job["spec"]["parallelism"]])
    c.same("job.yaml: GPUs of a node", counts[0], container["resources"]["limits"]["nvidia.com/gpu"])
    c.same("job.yaml: pods go by the service's name", service["metadata"]["name"], job["spec"]["template"]["spec"]["subdomain"])
    c.same("job.yaml: a service's name", True, re.fullmatch(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", service["metadata"]["name"]) is not None)
    variables = {one["name"]: one["value"] for one in container["env"]}
    for node in sorted({0, len(counts) - 1}):
        (started,) = launching.run([*container["command"], *container["args"]], {**variables, "JOB_COMPLETION_INDEX": str(node)})
        address = f"{job['metadata']['name']}-0.{service['metadata']['name']}:29500"
        compare_start(c, "job.yaml", started, node, address)


def check(folder, c):
    with tempfile.TemporaryDirectory(prefix="two words ") as scratch:  # a folder that shells would split
        moved = os.path.join(scratch, "plan")
        os.symlink(folder, moved)
        check_scripts(moved, c)
        check_slurm(moved, c)
        check_kubernetes(moved, c)


judge(check)
