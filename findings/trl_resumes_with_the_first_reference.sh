#!/usr/bin/env bash
# trl 1.16.0, transformers 5.24.0, torch 2.15.0: with sync_ref_model a resumed run begins again with the first reference.
#
# Expected: sync_ref_model=True (TR-DPO) moves the reference towards the policy while training. A run resumed from a checkpoint of
#   Trainer goes on as if it had not been stopped.
# Seen, DPOTrainer on a small Llama, 48 steps, the reference moved every 8 steps by the default of 0.6, resumed at step 24. In the
#   whole run the reference is then 0.77 away from the base model (norm). Resumed, it is the base model again. The next four steps log a
#   margin of 0.50 and a loss of 0.48, where the whole run has 0.09 and 0.65.
# Controls: without sync_ref_model the resumed run ends at the weights of the whole one, to the last bit. So does it with
#   sync_ref_model once a callback saves and loads the reference's weights.
# Why: the reference is a second model beside the trainer's. Checkpoints hold the policy, the optimizer, the schedule and random states.
#   A new trainer loads the reference from the base model, and resuming changes the policy alone.
# Why it matters: each restart changes what is trained, to another loss and other rewards. With the default of 512 steps between
#   moves it lasts for hundreds of steps. Nothing warns. KTO and GRPO use the same callback (read, not run).
# Usage: ./trl_resumes_with_the_first_reference.sh (about two minutes, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 transformers==5.24.0 accelerate==1.16.0 \
  trl==1.16.0 datasets==5.2.0
cat >"$folder/resume.py" <<'END'
import os
import sys

import torch
import transformers as hf
import trl
from datasets import Dataset, disable_progress_bars
from tokenizers import Tokenizer, models, pre_tokenizers

hf.logging.set_verbosity_error()
hf.logging.disable_progress_bar()
disable_progress_bars()
torch.set_num_threads(1)
assert torch.__version__.startswith("2.15.0") and hf.__version__ == "5.24.0" and trl.__version__ == "1.16.0"
print("torch", torch.__version__, "transformers", hf.__version__, "trl", trl.__version__)
FOLDER, HALF, STEPS = sys.argv[1], 24, 48
BASE = f"{FOLDER}/base"
words = {f"w{i}": i for i in range(60)} | {"<pad>": 60, "<eos>": 61, "<unk>": 62, "<bos>": 63}
splitter = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
splitter.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = hf.PreTrainedTokenizerFast(tokenizer_object=splitter, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>", bos_token="<bos>")
draws = torch.Generator().manual_seed(1)


def text(length):
    return " ".join(f"w{word}" for word in torch.randint(0, 60, (length,), generator=draws).tolist())


def flat(model):
    return torch.cat([weight.detach().flatten() for weight in model.parameters()])


pairs = Dataset.from_list([{"prompt": text(4) + " ", "chosen": text(6), "rejected": text(6)} for _ in range(128)])
torch.manual_seed(0)
base = hf.LlamaForCausalLM(hf.LlamaConfig(vocab_size=64, hidden_size=64, intermediate_size=128, num_hidden_layers=2, initializer_range=0.1,
                                          num_attention_heads=4, pad_token_id=60, eos_token_id=61, bos_token_id=63))
base.save_pretrained(BASE)
tokenizer.save_pretrained(BASE)
base = flat(base)


class Watch(hf.TrainerCallback):
    """Notes how far the reference is from the base model, and, in the control, saves and loads it."""

    def __init__(self, trainer, keep):
        self.trainer, self.keep, self.path, self.far = trainer, keep, f"{FOLDER}/reference.pt", None

    def on_train_begin(self, args, state, control, **_):
        if self.keep and state.global_step:
            self.trainer.ref_model.load_state_dict(torch.load(self.path))

    def on_step_begin(self, args, state, control, **_):
        if state.global_step == HALF:
            self.far = (flat(self.trainer.ref_model) - base).norm().item()

    def on_save(self, args, state, control, **_):
        if state.global_step == HALF:
            torch.save(self.trainer.ref_model.state_dict(), self.path)


def run(name, sync, resume=False, keep=False):
    """The weights at the end, the reference's way at half of the steps, and loss and margin that are logged next."""
    output = f"{FOLDER}/{'moved' if sync else 'fixed'}"
    options = trl.DPOConfig(output, per_device_train_batch_size=8, max_steps=STEPS, learning_rate=5e-4, lr_scheduler_type="constant", use_cpu=True,
                            bf16=False, gradient_checkpointing=False, report_to=[], disable_tqdm=True, logging_steps=4, save_steps=HALF,
                            sync_ref_model=sync, ref_model_sync_steps=8)
    trainer = trl.DPOTrainer(hf.AutoModelForCausalLM.from_pretrained(BASE), args=options, train_dataset=pairs, processing_class=tokenizer)
    trainer.remove_callback(hf.PrinterCallback)
    watch = Watch(trainer, keep)
    trainer.add_callback(watch)
    trainer.train(resume_from_checkpoint=f"{output}/checkpoint-{HALF}" if resume else None)
    after = next(entry for entry in trainer.state.log_history if entry["step"] == HALF + 4)
    print(f"{name}: the reference is {watch.far:.4f} from the base model at step {HALF}; next loss {after['loss']:.4f}, "
          f"margin {after['rewards/margins']:.4f}", flush=True)
    return flat(trainer.model), watch.far, after["loss"], after["rewards/margins"]


whole = run("sync_ref_model, whole run", True)
assert os.path.exists(f"{FOLDER}/moved/checkpoint-{HALF}/model.safetensors")
kept = run("sync_ref_model, resumed, reference kept by hand", True, True, True)
seen = run("sync_ref_model, resumed", True, True)
fixed, again = run("fixed reference, whole run", False), run("fixed reference, resumed", False, True)
off = ((seen[0] - whole[0]).norm() / (whole[0] - base).norm()).item()
print(f"weights at the end are off by {off:.4f} of their way; {(kept[0] - whole[0]).abs().max():.1f} with the reference kept")
assert torch.equal(kept[0], whole[0]) and torch.equal(fixed[0], again[0])
assert whole[1] > 0.5 and seen[1] == 0, ("the behaviour changed", whole[1], seen[1])
assert abs(whole[2] - 0.650) < 0.01 and abs(whole[3] - 0.088) < 0.02 and abs(seen[2] - 0.477) < 0.01 and abs(seen[3] - 0.502) < 0.02
assert off > 0.01
END
OMP_NUM_THREADS=1 "$folder/env/bin/python" -W ignore "$folder/resume.py" "$folder" 2>"$folder/errors" || { tail "$folder/errors"; exit 1; }
