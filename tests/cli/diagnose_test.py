# SPDX-License-Identifier: Apache-2.0
"""mpt-plan diagnose finds causes that are known: emulated runs with a slow rank, a slow link, slow data or a bad layout.

Usage: diagnose_test.py BIN EMULATE_PLAN
"""

import json
import os
import subprocess
import sys
import tempfile

BIN, EMULATE_PLAN = sys.argv[1:]
FAILED = []
PLAN = ["--model", "llama3.2-1b", "--cluster", "dgx-h100:1", "--global-batch", 32, "--seq", 2048, "--schedule", "1f1b",
        "--framework", "megatron-bridge"]


def run(program, *options):
    done = subprocess.run([os.path.join(BIN, program), *map(str, options)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.returncode, done.stdout


def check(what, right, why):
    if not right:
        FAILED.append(what)
        print(f"FAILED {what}: {why}")


def emulate(scratch, plan, name, *faults):
    log = os.path.join(scratch, name + ".jsonl")
    # Longer sleeps are more exact; the machine that runs this may be busy.
    code, output = run(EMULATE_PLAN, plan, "--time-scale", 3, "--steps", 3, "--log", log, *faults)
    check(f"{name}, emulation", code == 0, output)
    return log


def causes(plan, *options):
    code, output = run("mpt-plan", "diagnose", plan, *options, "--json")
    if code != 0:
        check(f"diagnose {options}", False, output)
        return {"causes": []}
    return json.loads(output)


def first(diagnosis):
    return diagnosis["causes"][0]["name"] if diagnosis["causes"] else "nothing"


def text_of(*options):
    code, output = run("mpt-plan", "diagnose", *options)
    return code, " ".join(output.split())


def write(scratch, name, text):
    path = os.path.join(scratch, name)
    with open(path, "w") as out:
        out.write(text)
    return path


def megatron(seconds, batch=32, more="number of skipped iterations:   0 | number of nan iterations:   0 |", prefix="0: "):
    """A log of Megatron-LM with these step times, as srun -l shows it."""
    return "".join(f"{prefix} [2026-01-01 00:00:00] iteration {i:8}/ 1000 | consumed samples: 1 | elapsed time per iteration (ms): {1000 * s:.1f} | "
                   f"global batch size: {batch:5} | lm loss: 2.0E+00 | {more}\n" for i, s in enumerate(seconds, 1))


def logs_of_frameworks(scratch, plan, predicted):
    steps = range(1, 9)
    rate = 32 / predicted / 1.2
    forms = {"NeMo": [f"Training epoch 0, iteration {i}/29 | global_batch_size: 32 | global_step: {i} | reduced_train_loss: 10.2 | train_step_timing in s: "
                      f"{1.2 * predicted}" for i in steps],
             "GPT-NeoX": [f" samples/sec: {rate:.3f} | iteration {i:8}/ 100 | elapsed time per iteration (ms): {1200 * predicted:.1f} | lm_loss: 1.1E+01 |"
                          for i in steps],
             "DeepSpeed": [f"[2026-01-01 00:00:00,985] [INFO] [timer.py:215:stop] epoch=0/micro_step={i}/global_step={i}, RunningAvgSamplesPerSec=1.0, "
                           f"CurrSamplesPerSec={rate}, MemAllocated=1.0GB, MaxMemAllocated=7.0GB" for i in steps],
             "the Hugging Face Trainer": ["  Total train batch size (w. parallel, distributed & accumulation) = 32", "{'loss': 1.2, 'grad_norm': 1.0}"] +
                                         [f"  {i}%|#    | {i}/100 [00:0{i}<10:00, {1.2 * predicted:8.6f}s/it]" for i in steps],
             "Megatron-LM": megatron([1.2 * predicted] * 8).splitlines()}
    for whose, lines in forms.items():
        for prefix in ("", "[rank0]:", "[1,0]<stdout>:", "node1: [0]:", "2026-01-01T00:00:00.123Z "):
            log = write(scratch, "framework.log", "".join(prefix + line + "\n" for line in lines))
            told = causes(plan, log, "--no-search")
            check(f"{whose} behind '{prefix}'", abs(told.get("measured_step_time_s", 0) / predicted - 1.2) < 0.02, told)
        code, output = text_of(plan, log, "--no-search")
        check(f"{whose}, what is open", code == 0 and whose + "'s log" in output and "Not explained" in output and "These measurements would tell" in output
              and "mpt-profile --model llama3.2-1b" in output and "nothing found costs" not in output, output)


def troubles_of_logs(scratch, plan, predicted):
    slowing = write(scratch, "slowing.log", megatron([predicted * (1.5 + 0.1 * i) for i in range(185)]))
    told = causes(plan, slowing, "--no-search")
    check("a run that slows down", first(told) == "steps that grow" and abs(told["drift"]["slope_s_per_step"] / predicted - 0.1) < 0.01, told)
    code, output = text_of(plan, slowing, "--no-search")
    check("a run that slows down, in words", code == 0 and "Step time grows from" in output and "nothing found costs" not in output, output)

    nan = write(scratch, "nan.log", megatron([predicted] * 20) + megatron([predicted] * 20, more="number of skipped iterations:   1 | number of nan iterations:   1 |"))
    code, output = text_of(plan, nan, "--no-search")
    check("NaN and skipped steps", code == 0 and "20 steps (the first is step 1) had a loss or gradients that are not finite" in output
          and "left the weights as they were" in output, output)

    memory = ("[rank5]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 5 has a total capacity of 79.11 GiB of which 1.50 GiB is free.\n"
              "[rank2]:[E1218 20:27:21.4 ProcessGroupNCCL.cpp:629] [Rank 2] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, OpType=ALLREDUCE, "
              "Timeout(ms)=600000) ran for 600081 milliseconds before timing out.\n")
    code, output = text_of(plan, write(scratch, "memory.log", memory))
    check("a log without a step", code == 0 and "Rank 5 ran out of GPU memory" in output and "2.50 GiB" in output and "Rank 2 waited too long" in output, output)

    for name, log, words in (("another batch", megatron([predicted] * 5, batch=1024), ("at line 1", "a global batch of 1,024", "--global-batch 1024")),
                             ("another world", "using world size: 64, data-parallel size: 64\n" + megatron([predicted] * 5), ("a world size of 64", "--gpus 64")),
                             ("another length", "  seq_length ...... 4096\n" + megatron([predicted] * 5), ("a sequence length of 4,096",)),
                             ("a step that cannot be", megatron([predicted / 1000] * 5), ("faster than the GPUs can be", "milliseconds and seconds")),
                             ("a time that is none", megatron([1e9] * 5), ("at line 1", "leave that line out"))):
        code, output = text_of(plan, write(scratch, "wrong.log", log))
        check(name, code == 2 and all(word in output for word in words), output)


def titan(memory, seconds, tokens, gpus):
    return "".join(f"[titan] step: {i:2}  loss:  8.0  grad_norm:  1.0  memory: {memory:.1f}GiB(50.0%)  tps: {tokens / seconds / gpus:,.0f}  tflops: 1.0  mfu: 1.0%\n"
                   for i in range(8))


def peak_of(plan):
    return max(rank["peak_bytes"] for rank in plan["prediction"]["memory"]) / 2**30


def other_runs(scratch):
    """Logs of runs that are not their plan: their memory, or their time, says so."""
    plans = {}
    for recompute in ("full", "none"):
        path = os.path.join(scratch, f"{recompute}.json")
        code, output = run("mpt-plan", "estimate", "--model", "llama3-8b", "--cluster", "dgx-h100:1", "--framework", "torchtitan", "--global-batch", 64,
                           "--seq", 8192, "--dp", 8, "--zero", 3, "--recompute", recompute, "-o", path)
        check(f"a plan with recompute {recompute}", code == 0, output)
        plans[recompute] = json.load(open(path))
    predicted, tokens = plans["full"]["prediction"]["step_time_s"], 64 * 8192
    full = os.path.join(scratch, "full.json")
    as_planned = write(scratch, "as-planned.log", titan(peak_of(plans["full"]), predicted, tokens, 8))
    told = causes(full, as_planned, "--no-search")
    check("a run with the plan's memory", told.get("doubt") == "", told)
    # Without recompute the same run has this memory: that is the cause to look at first, and no other.
    without = write(scratch, "without.log", titan(peak_of(plans["none"]), 1.37 * predicted, tokens, 8))
    told = causes(full, without, "--no-search")
    check("a run without recompute", "Without recompute (activation checkpointing off)" in told.get("doubt", "") and told["next_measurements"] == [], told)
    code, output = text_of(full, without, "--no-search")
    check("a run without recompute, in words", code == 0 and "probably not this plan" in output and "NCCL:" not in output, output)
    told = causes(os.path.join(scratch, "none.json"), as_planned, "--no-search")
    check("a run with recompute that its plan has not", "With full recompute" in told.get("doubt", ""), told)
    oom = write(scratch, "oom.log", "[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 79.11 GiB "
                "of which 1.50 GiB is free.\n")
    code, output = text_of(full, oom)
    check("out of memory far above the plan", code == 0 and "probably not this plan" in output and "more --recompute" not in output
          and "--recompute full" not in output, output)
    faster = causes(full, "--measured", f"{predicted / 2}s")
    check("faster than any layout", "faster than any layout" in faster.get("doubt", "") and faster["next_measurements"] == [], faster)
    check("as predicted", causes(full, "--measured", f"{predicted}s").get("doubt") == "", "a doubt")


def main():
    with tempfile.TemporaryDirectory() as scratch:
        plan = os.path.join(scratch, "plan.json")
        code, output = run("mpt-plan", *PLAN, "--tp", 2, "--pp", 2, "--dp", 2, "-o", plan)
        check("plan", code == 0, output)
        predicted = json.load(open(plan))["prediction"]["step_time_s"]
        cases = {"slow rank": (["--slow-rank", "1:1.5"], "slow rank 1"),
                 "slow rank of another replica": (["--slow-rank", "6:1.5"], "slow rank 6"),
                 "slow link between stages": (["--slow-link", "transfer:100"], "transfers between stages"),
                 "slow link between tensor ranks": (["--slow-link", "tensor:4"], "tensor-parallel collectives"),
                 "slow link between replicas": (["--slow-link", "gradients:10"], "gradient reduction and norm"),
                 "slow data": (["--slow-data", 0.2], "waiting for data")}
        trace = os.path.join(scratch, "trace.json")
        for name, (faults, cause) in cases.items():
            diagnosis = causes(plan, emulate(scratch, plan, name.replace(" ", "-"), *faults), "--no-search")
            check(name, first(diagnosis) == cause, diagnosis)
            if diagnosis["causes"]:
                won = diagnosis["causes"][0]["seconds"]
                lost = diagnosis["measured_step_time_s"] - predicted
                check(f"{name}, its cost", 0.6 * lost <= won <= 1.4 * lost, (won, lost))
        healthy = causes(plan, emulate(scratch, plan, "healthy"), "--no-search")
        check("healthy", all(c["share"] < 0.1 for c in healthy["causes"]), healthy)

        bad = os.path.join(scratch, "bad.json")
        run("mpt-plan", "--model", "llama3.2-1b", "--cluster", "dgx-h100:1", "--global-batch", 32, "--seq", 2048, "--pp", 8, "--tp", 1,
            "--schedule", "gpipe", "--framework", "megatron-bridge", "--beyond-framework", "-o", bad)
        diagnosis = causes(bad, emulate(scratch, bad, "bad"))
        check("bad layout", first(diagnosis) == "the layout" and "without --pp 8" in diagnosis["causes"][0]["change"], diagnosis)

        # What another layout gains is of the measured step, and no more than the step has over that layout's prediction.
        slow = json.load(open(bad))["prediction"]["step_time_s"]
        best = None
        for measured in (slow, 1.5 * slow, 0.8 * slow):
            told = causes(bad, "--measured", f"{measured}s")
            won = [c["seconds"] for c in told["causes"] if c["name"] == "the layout"]
            if best is None:
                best = measured - won[0] if won else 0.0
            right = min(measured - best, measured * (1 - best / slow))
            check(f"gain of {measured / slow} times the predicted step", len(won) == 1 and abs(won[0] - right) < 1e-6 * slow, (won, right))
        told = causes(bad, "--measured", f"{1.001 * best}s")
        check("a run as fast as the best layout", told["causes"] == [], told)
        code, output = run("mpt-plan", "diagnose", bad, "--measured", f"{1.001 * best}s")
        check("a run as fast as the best layout, in words", code == 0 and "Not explained: " in output and "less than predicted" in output
              and "nothing found costs" not in output, output)

        log = os.path.join(scratch, "megatron.log")
        with open(log, "w") as out:
            for i in range(8):
                out.write(f" [2026-01-01 00:00:0{i}] iteration {i:8}/ 100 | consumed samples: 1 | elapsed time per iteration (ms): "
                          f"{predicted * 1500:.1f} | learning rate: 1.0E-05 |\n")
        diagnosis = causes(plan, log, "--no-search")
        check("Megatron-LM's log", abs(diagnosis["measured_step_time_s"] / predicted - 1.5) < 0.01, diagnosis)
        log = os.path.join(scratch, "titan.log")
        with open(log, "w") as out:
            for i in range(8):
                tps = 32 * 2048 / 8 / predicted / 2
                out.write(f"[titan] step: {i:2}  loss:  8.0  grad_norm:  1.0  memory: 30.0GiB(40.0%)  tps: {tps:,.0f}  tflops: 1.0  mfu: 1.0%\n")
        diagnosis = causes(plan, log, "--no-search")
        check("torchtitan's log", abs(diagnosis["measured_step_time_s"] / predicted - 2.0) < 0.01, diagnosis)

        other_runs(scratch)
        logs_of_frameworks(scratch, plan, predicted)
        troubles_of_logs(scratch, plan, predicted)

        nothing = write(scratch, "nothing.log", "hello\n")
        code, output = run("mpt-plan", "--from", plan, "--trace", trace)
        check("a trace of the plan", code == 0, output)
        for name, options, words in (("no log", [plan], "--measured"), ("a trace", [plan, trace], "a log of mpt-run (--log)"), ("a log of nothing", [plan, nothing], "elapsed time per iteration"),
                                     ("no plan", [log, log], "JSON")):
            code, output = run("mpt-plan", "diagnose", *options)
            check(name, code == 2 and words in output, output)
        # Odd values in a file that is of the right form otherwise.
        odd = os.path.join(scratch, "odd.json")
        for row in ({"step_time_s": "x"}, {"step_time_s": 0}, {"step_time_s": -1, "ranks": 5, "instructions": {}}):
            with open(odd, "w") as out:
                out.write('{"format": "mpt-run-log"}\n' + json.dumps(row) + "\n")
            code, output = run("mpt-plan", "diagnose", plan, odd)
            check(f"log of {row}", code == 2 and odd in output, output)
        with open(odd, "w") as out:
            row = {"step_time_s": 1.0, "ranks": [5, {"rank": 1e300, "compute_s": 1}], "instructions": [7, {"kind": 3}, {"kind": "forward", "stage": "x"}]}
            out.write('{"format": "mpt-run-log"}\n' + json.dumps(row) + "\n")
        code, output = run("mpt-plan", "diagnose", plan, odd, "--no-search")
        check("odd ranks and instructions", code == 0 and "1 steps" in output, output)
    print(f"{len(FAILED)} failed" if FAILED else "every cause was found")
    return 1 if FAILED else 0


sys.exit(main())
