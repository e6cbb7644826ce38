#!/usr/bin/env bash
# trl 1.16.0 (accelerate 1.15.0, peft 0.21.2, transformers 5.24.0, torch 2.15.0): on FSDP2 rows of the head learn from one rank's samples.
#
# Expected: SFTTrainer on two ranks with two samples each gives the gradient that one process gives for all four samples.
# Seen: a Llama in full training does. lm_head of a Llama with LoRA and modules_to_save=["lm_head"] does not: its gradient is 1.50 times
#   as large. Nor does lm_head of Qwen2.5-VL in full training: 1.50, too. The upper half of the head's rows has the gradient of the
#   mean over rank 0's samples, and the lower half that over rank 1's. All other weights are right.
# Why: TRL's loss reads lm_head.weight and never calls lm_head. Where FSDP2 has not gathered it, TRL calls full_tensor(). The gradient of
#   that is a share of this rank's own gradient: nothing sums over ranks. FSDP2 gathers the head with the final norm, if accelerate
#   finds the norm among the children of the base model. It finds none beneath PEFT's wrapper or beneath a model with images.
# Why it matters: nothing raises and the loss falls. On 64 ranks each row of the head learns from 1/64 of the batch, with 8 times the
#   noise. DPO, KTO, GRPO and RLOO use the same function. TRL itself adds lm_head to modules_to_save when a chat template adds tokens.
# Usage: ./trl_deals_parts_of_the_head_to_single_ranks.sh (about 3 minutes, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 transformers==5.24.0 accelerate==1.15.0 \
  peft==0.21.2 trl==1.16.0
cat >"$folder/head.py" <<'END'
import os
import sys

import accelerate
import peft
import torch
import transformers as hf
import trl
from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin
from datasets import Dataset, disable_progress_bars
from tokenizers import Tokenizer, models
from torch.distributed.tensor import DTensor

hf.logging.set_verbosity_error()
disable_progress_bars()
torch.set_num_threads(1)
assert torch.__version__.startswith("2.15.0") and hf.__version__ == "5.24.0" and accelerate.__version__ == "1.15.0"
assert peft.__version__ == "0.21.2" and trl.__version__ == "1.16.0"
folder, RANK, RANKS = sys.argv[1], int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
words = {f"w{i}": i for i in range(62)} | {"<pad>": 62, "<eos>": 63}
tokenizer = hf.PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel(words, unk_token="<pad>")), pad_token="<pad>",
                                       eos_token="<eos>")
torch.manual_seed(0)
samples = torch.randint(0, 50, (4, 9)).tolist()
sizes = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 4, "bos_token_id": None, "eos_token_id": 63, "pad_token_id": 62}
sight = {"depth": 1, "hidden_size": 32, "intermediate_size": 64, "num_heads": 4, "out_hidden_size": 32, "fullatt_block_indexes": [0]}
turns = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [1, 1, 2]}


class Trainer(trl.SFTTrainer):
    def create_accelerator_and_postprocess(self):
        super().create_accelerator_and_postprocess()
        if RANKS > 1:  # accelerate leaves FSDP out on CPU ranks
            self.accelerator.state.distributed_type = DistributedType.FSDP
            self.accelerator.state.fsdp_plugin = FullyShardedDataParallelPlugin(
                fsdp_version=2, auto_wrap_policy="transformer_based_wrap", cpu_ram_efficient_loading=False)
            self.is_fsdp_enabled = True


class Gradients(hf.TrainerCallback):
    def on_pre_optimizer_step(self, args, state, control, model=None, **_):
        gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
        self.seen = {name: (g.full_tensor() if isinstance(g, DTensor) else g).double().clone() for name, g in gradients.items()}


def gradients(kind, rows):
    torch.manual_seed(1)
    if kind == "Qwen2.5-VL in full":
        model = hf.Qwen2_5_VLForConditionalGeneration(hf.Qwen2_5_VLConfig(
            text_config={**sizes, "rope_parameters": turns}, vision_config=sight, image_token_id=60, video_token_id=61,
            vision_start_token_id=59, vision_end_token_id=58, tie_word_embeddings=False))
    else:
        model = hf.LlamaForCausalLM(hf.LlamaConfig(**sizes))
    # init_lora_weights: else all gradients of lora_A are 0
    adapters = peft.LoraConfig(r=4, target_modules=["q_proj"], modules_to_save=["lm_head"], init_lora_weights=False)
    options = trl.SFTConfig(folder, per_device_train_batch_size=len(rows) // RANKS, max_steps=1, max_grad_norm=0.0, use_cpu=True, bf16=False,
                            gradient_checkpointing=False, learning_rate=0.0, report_to=[], save_strategy="no", disable_tqdm=True,
                            train_sampling_strategy="sequential")
    callback = Gradients()
    trainer = Trainer(model, options, train_dataset=Dataset.from_dict({"input_ids": rows}), processing_class=tokenizer,
                      peft_config=adapters if "LoRA" in kind else None, callbacks=[callback])
    trainer.remove_callback(hf.PrinterCallback)
    trainer.train()
    assert type(trainer.model_wrapped).__name__.startswith("FSDP") == (RANKS > 1)
    return callback.seen


def apart(seen, wanted):
    return ((seen - wanted).norm() / wanted.norm()).item()


def is_head(name):
    return "lm_head" in name


for kind, fault in {"Llama in full": False, "Llama with LoRA and its head": True, "Qwen2.5-VL in full": True}.items():
    kept = f"{folder}/{kind}"
    if RANKS == 1:
        torch.save([gradients(kind, samples), gradients(kind, samples[:2]), gradients(kind, samples[2:])], kept)
        continue
    seen = gradients(kind, samples)
    everyone, *of_ranks = torch.load(kept)
    assert seen.keys() == everyone.keys()
    head, = filter(is_head, seen)
    # A rank's own gradient is a mean over its 18 predictions; all 36 weigh half of it, and the ranks' number multiplies the loss.
    split = torch.cat([of_ranks[rank][head][32 * rank:32 * rank + 32] for rank in range(2)])
    size = (seen[head].norm() / everyone[head].norm()).item()
    off, off_split = apart(seen[head], everyone[head]), apart(seen[head], split)
    others = max(apart(seen[name], everyone[name]) for name in seen if not is_head(name))
    if RANK == 0:
        print(f"{kind}: the head's gradient is {size:.3f} times as large as on one process. It differs from that by {off:.3f},")
        print(f"  from rows of single ranks by {off_split:.3f}; all other weights differ by at most {others:.3f}")
    assert others < 1e-4
    assert off > 0.9 and off_split < 1e-4 if fault else off < 1e-4
END
"$folder/env/bin/python" -W ignore "$folder/head.py" "$folder" >"$folder/errors" 2>&1 || { tail "$folder/errors"; exit 1; }
timeout 500 "$folder/env/bin/python" -W ignore -m torch.distributed.run --standalone --nproc-per-node 2 "$folder/head.py" "$folder" \
  2>"$folder/errors" || { tail "$folder/errors"; exit 1; }
