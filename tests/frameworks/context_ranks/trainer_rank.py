# SPDX-License-Identifier: Apache-2.0
"""One rank of an exported trial of the Trainer: run_accelerate.sh trainer_rank.py FOLDER REPORT. It is the trial's main() with known data."""

import json
import os
import runpy
import sys

FOLDER, REPORT = sys.argv[1:]
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import one_process  # noqa: E402

one_process.use_cpus(os.path.dirname(HERE))
import torch  # noqa: E402
from accelerate.state import DistributedType, PartialState  # noqa: E402

# Without a GPU accelerate takes all ranks of DeepSpeed for one process, and gives each the same data.
PartialState._prepare_backend = lambda *_, **__: ("gloo", DistributedType.MULTI_CPU)
trial = runpy.run_path(os.path.join(FOLDER, "mpt_trainer_trial.py"))
names = trial["main"].__globals__
logs = []


class Tokens(trial["Tokens"]):
    def __getitem__(self, index):
        item = super().__getitem__(index)  # with what else the exported file gives
        known = one_process.sequence_of(index, self.length, self.words)
        return {**item, "input_ids": known, "labels": known}


class InOrder(trial["Trainer"]):
    def _get_train_sampler(self, *_):
        return torch.utils.data.SequentialSampler(self.train_dataset)

    def log(self, values, *arguments, **options):
        logs.append(values)
        super().log(values, *arguments, **options)


class Models:
    from_config = staticmethod(one_process.new_model)


def arguments(steps, **more):
    return trial["arguments"](steps, **{"logging_steps": 1, "learning_rate": one_process.RATE, "lr_scheduler_type": "constant", "weight_decay": 0.0,
                                        "max_grad_norm": 0.0, "optim": "adamw_torch", "disable_tqdm": True, "logging_nan_inf_filter": False, **more})


names.update(Tokens=Tokens, Trainer=InOrder, AutoModelForCausalLM=Models, arguments=arguments)
sys.argv = ["mpt_trainer_trial.py", str(one_process.STEPS)]
trial["main"]()
if int(os.environ["RANK"]) == 0:
    # ZeRO 3 shares weights out as they are made, and draws them otherwise: started/deepspeed_engine.py compares gradients.
    steps = [entry for entry in logs if "grad_norm" in entry]
    with open(REPORT, "w", encoding="utf-8") as out:
        json.dump({"framework": {"losses": [entry["loss"] for entry in steps], "norms": [float(entry["grad_norm"]) for entry in steps]}}, out)
