# SPDX-License-Identifier: Apache-2.0
"""Two hosts with a slow link between them, as two network namespaces of this machine. Needs root, ip and tc."""

import json
import os
import shutil
import statistics
import subprocess
import sys


def run(*command):
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}")
    return done.stdout


class LinkedHosts:
    """Whole set-ups beside each other: each with its own name and its own number for the network 10.77.NUMBER.0."""

    def __init__(self, name, number, bits_per_s):
        self.hosts = [f"{name}-a", f"{name}-b"]
        self.device, self.network, self.bits_per_s = name, f"10.77.{number}", bits_per_s

    def set_up(self):
        """What is missing for it, or None."""
        for tool in ("ip", "tc"):
            if shutil.which(tool) is None:
                return f"no program {tool} (package iproute2)"
        self.tear_down()
        commands = [["ip", "netns", "add", host] for host in self.hosts]
        commands.append(["ip", "link", "add", self.device, "netns", self.hosts[0], "type", "veth", "peer", "name", self.device,
                         "netns", self.hosts[1]])
        for i, host in enumerate(self.hosts):
            inside = ["ip", "netns", "exec", host]
            commands += [inside + ["ip", "address", "add", f"{self.network}.{i + 1}/24", "dev", self.device],
                         inside + ["ip", "link", "set", self.device, "up"], inside + ["ip", "link", "set", "lo", "up"],
                         inside + ["tc", "qdisc", "add", "dev", self.device, "root", "tbf", "rate", f"{self.bits_per_s:.0f}bit",
                                   "burst", "64kb", "latency", "400ms"]]
        for command in commands:
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            if done.returncode != 0:
                return f"{' '.join(command)}: {done.stdout.strip()}"
        return None

    def tear_down(self):
        if shutil.which("ip"):
            for host in self.hosts:
                subprocess.run(["ip", "netns", "del", host], stderr=subprocess.DEVNULL)

    def write_cluster(self, plan_of_one_host, file, ranks_per_host):
        """The device of a plan for this machine, on both hosts, with the link between."""
        with open(plan_of_one_host) as opened:
            cluster = json.load(opened)["cluster"]
        inside = dict(cluster["levels"][0], group_size=ranks_per_host)
        link = dict(inside, name="ethernet", group_size=2 * ranks_per_host, latency_s=1e-4, bandwidth_bytes_per_s=self.bits_per_s / 8)
        with open(file, "w") as opened:
            json.dump(dict(cluster, name="two-hosts", devices_per_node=ranks_per_host, levels=[inside, link]), opened)

    def step_time(self, mpt_run, plan, text, steps, warm_up):
        """Median seconds of a plan's step, with one process on each host."""
        log = plan + ".jsonl"
        processes = []
        for rank, host in enumerate(self.hosts):
            environment = dict(os.environ, RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR=f"{self.network}.1", MASTER_PORT="29500")
            processes.append(subprocess.Popen(["ip", "netns", "exec", host, mpt_run, plan, "--data", text, "--steps", str(steps),
                                               "--log", log, "--timeout", "60"], env=environment, text=True, stdout=subprocess.PIPE,
                                              stderr=subprocess.STDOUT))
        for process in processes:
            output = process.communicate(timeout=300)[0]
            if process.returncode != 0:
                sys.exit(output)
        with open(log) as lines:
            times = [row["step_time_s"] for row in map(json.loads, lines) if "step_time_s" in row]
        return statistics.median(times[warm_up:])
