# SPDX-License-Identifier: Apache-2.0
"""One rank of a training with Hugging Face's Trainer on CPUs: train_trainer.py FOLDER, with what accelerate launch sets."""

import json
import os
import sys

FOLDER = sys.argv[1]
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import stubs  # noqa: E402

stubs.use()
import torch  # noqa: E402
from transformers import AutoConfig, AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments  # noqa: E402
from trainer_judging import ScriptArguments  # noqa: E402
from training import RATE, STEPS, plain_losses, tokens_of  # noqa: E402


class Steps(torch.utils.data.Dataset):
    """The batches of all steps behind one another; the Trainer reads them in this order."""

    def __init__(self, batch, sequence, vocab):
        self.rows = torch.cat([tokens_of(step, batch, sequence, vocab) for step in range(STEPS)])

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return {"input_ids": self.rows[index], "labels": self.rows[index]}


class InOrder(Trainer):
    def _get_train_sampler(self, *_):
        return torch.utils.data.SequentialSampler(self.train_dataset)


def new_model(config):
    torch.manual_seed(7)
    return AutoModelForCausalLM.from_config(config, attn_implementation="sdpa", dtype=torch.float32)


def main():
    if os.environ.get("ACCELERATE_USE_DEEPSPEED") == "true":
        stubs.plain_gloo()
    with open(os.path.join(FOLDER, "train.json"), encoding="utf-8") as file:
        values = json.load(file)
    values |= {"output_dir": os.path.join(FOLDER, "out"), "use_cpu": True, "report_to": "none", "max_steps": STEPS, "logging_steps": 1,
               "learning_rate": RATE, "weight_decay": 0.0, "max_grad_norm": 0.0, "lr_scheduler_type": "constant", "optim": "adamw_torch",
               "save_strategy": "no", "disable_tqdm": True}
    script, training = HfArgumentParser((ScriptArguments, TrainingArguments)).parse_dict(values)
    config = AutoConfig.from_pretrained(os.path.join(FOLDER, script.config_name))
    batch = training.per_device_train_batch_size * training.gradient_accumulation_steps * int(os.environ["WORLD_SIZE"])
    model = new_model(config)
    model.config.use_cache = False
    trainer = InOrder(model=model, args=training, train_dataset=Steps(batch, script.block_size, config.vocab_size))
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    clipped = getattr(trainer.model_wrapped, "gradient_clipping", lambda: 0.0)()
    plain = plain_losses(new_model(config), batch, script.block_size, config.vocab_size, clipped) if training.process_index == 0 else []
    print(json.dumps({"losses": losses, "plain": plain}))


main()
