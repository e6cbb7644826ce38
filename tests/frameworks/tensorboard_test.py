# SPDX-License-Identifier: Apache-2.0
"""TensorBoard reads the curves of `mpt-run --tensorboard`: each step once, also after a run that was taken back and resumed.

Usage: tensorboard_test.py PROGRAMS, with an interpreter that has the package tensorboard; it skips with a reason elsewhere.
"""

import glob
import importlib.metadata
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile

CONFIG = dict(model_type="llama", hidden_act="silu", hidden_size=32, intermediate_size=64, max_position_embeddings=64,
              num_attention_heads=4, num_hidden_layers=2, num_key_value_heads=2, rms_norm_eps=1e-5, vocab_size=256)
TAGS = {"train/loss": "loss", "train/grad_norm": "gradient_norm", "train/learning_rate": "learning_rate", "train/tokens_per_s": "tokens_per_s",
        "time/step_s": "step_time_s", "time/idle_share": "bubble_share"}


def rows_of(log):
    with open(log, encoding="utf-8") as file:
        return [row for row in map(json.loads, file) if "step" in row]


def curves(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    reader = EventAccumulator(folder, size_guidance={"scalars": 0})
    reader.Reload()
    return {tag: {event.step: event.value for event in reader.Scalars(tag)} for tag in reader.Tags()["scalars"]}, [
        event.step for tag in reader.Tags()["scalars"][:1] for event in reader.Scalars(tag)]


def main():
    if importlib.util.find_spec("tensorboard") is None:
        print(f"tensorboard_test: skipped, because {sys.executable} has no tensorboard: run ./scripts/install-frameworks torch")
        return
    with tempfile.TemporaryDirectory() as scratch:
        model, text, plan, saved, folder, log = (os.path.join(scratch, name) for name in (
            "config.json", "data.txt", "plan.json", "saved", "curves", "log.jsonl"))
        with open(model, "w", encoding="utf-8") as file:
            json.dump(CONFIG, file)
        with open(text, "w", encoding="utf-8") as file:
            file.write("".join(f"line {i * 7919 % 997} of the text\n" for i in range(400)))

        def run(program, *arguments):
            subprocess.run([os.path.join(sys.argv[1], program), *map(str, arguments)], check=True, stdout=subprocess.DEVNULL)

        run("mpt-plan", "--model", model, "--cluster", "this-machine:2", "--global-batch", 4, "--seq", 32, "-o", plan)
        train = [plan, "--data", text, "--validation-share", 0.1, "--tensorboard", folder, "--log", log, "--checkpoints", saved]
        run("mpt-run", *train, "--steps", 6, "--save-every", 2, "--evaluate-every", 3, "--evaluation-steps", 1)
        shutil.rmtree(os.path.join(saved, "step-00000006"))
        run("mpt-run", *train, "--steps", 8, "--resume", "auto", "--lr", 1e-4, "--evaluate-every", 3, "--evaluation-steps", 1)
        newest = {row["step"]: row for row in rows_of(log)}  # a step that was done again counts as it was last
        found, steps = curves(folder)
        assert len(glob.glob(f"{folder}/events.out.tfevents.*")) == 2, os.listdir(folder)
        assert steps == list(range(1, 9)), f"steps {steps}"
        for tag, name in TAGS.items():
            wanted = {step: row[name] for step, row in newest.items()}
            assert found[tag].keys() == wanted.keys(), f"{tag}: {sorted(found[tag])}"
            assert all(abs(found[tag][step] - value) <= 1e-6 * abs(value) for step, value in wanted.items()), f"{tag}: {found[tag]}, {wanted}"
        validated = {step: row["validation_loss"] for step, row in newest.items() if row.get("validation_loss") is not None}
        assert validated and found["eval/loss"].keys() == validated.keys(), f"{sorted(found['eval/loss'])}, {sorted(validated)}"
    print(f"tensorboard {importlib.metadata.version('tensorboard')}: reads 8 steps of {len(found)} curves, those that were done again once")


if __name__ == "__main__":
    main()
