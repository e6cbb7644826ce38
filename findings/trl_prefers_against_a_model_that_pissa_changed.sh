#!/usr/bin/env bash
# trl 1.16.0, peft 0.21.2, transformers 5.24.0, torch 2.15.0: with PiSSA or OLoRA DPO's reference is not the model that training begins with.
#
# Expected: before the first update policy and reference are one model. DPO's loss is then ln 2 = 0.6931 and each reward 0, however
#   adapters begin. With a peft_config and no ref_model TRL takes the policy without its adapters as the reference.
# Seen, DPOTrainer on a small Llama, rank 8 of 64, before any update. The usual beginning gives 0.6931 and rewards of 0; "pissa" gives a
#   loss of 0.7768 and "olora" 0.6612. The policy's log-probabilities are those of the base model in each of the three cases.
# Why: these begin with a large product BA, and subtract it from the base weights. Without adapters the rest is a model that
#   nobody trained. PEFT's disable_adapter() does not add BA again.
# Why it matters: nothing raises or warns. beta holds the policy near a broken model, and rewards and accuracies are measured against
#   it. The loss starts near 0.69 all the same, so that a curve does not show it. GRPO and KTO switch adapters off in the same way
#   (read, not run). With ref_model TRL keeps that model (read, too).
# Usage: ./trl_prefers_against_a_model_that_pissa_changed.sh (about a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 transformers==5.24.0 accelerate==1.15.0 \
  peft==0.21.2 trl==1.16.0
cat >"$folder/prefer.py" <<'END'
import sys

import peft
import torch
import transformers as hf
import trl
from datasets import Dataset, disable_progress_bars
from tokenizers import Tokenizer, models, pre_tokenizers

hf.logging.set_verbosity_error()
disable_progress_bars()
torch.set_num_threads(1)
assert torch.__version__.startswith("2.15.0") and hf.__version__ == "5.24.0" and trl.__version__ == "1.16.0" and peft.__version__ == "0.21.2"
words = {f"w{i}": i for i in range(60)} | {"<pad>": 60, "<eos>": 61, "<unk>": 62, "<bos>": 63}
splitter = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
splitter.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = hf.PreTrainedTokenizerFast(tokenizer_object=splitter, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>", bos_token="<bos>")
draws = torch.Generator().manual_seed(1)


def text(length):
    return " ".join(f"w{word}" for word in torch.randint(0, 60, (length,), generator=draws).tolist())


pairs = Dataset.from_list([{"prompt": text(4) + " ", "chosen": text(6), "rejected": text(6)} for _ in range(8)])


def first_step(start):
    """What DPOTrainer logs of the first batch. The rate is 0: nothing is ever updated."""
    torch.manual_seed(0)
    model = hf.LlamaForCausalLM(hf.LlamaConfig(vocab_size=64, hidden_size=64, intermediate_size=128, num_hidden_layers=2, initializer_range=0.1,
                                               num_attention_heads=4, pad_token_id=60, eos_token_id=61, bos_token_id=63))
    options = trl.DPOConfig(sys.argv[1], per_device_train_batch_size=8, max_steps=1, logging_steps=1, learning_rate=0.0, use_cpu=True, bf16=False,
                            gradient_checkpointing=False, report_to=[], save_strategy="no", disable_tqdm=True)
    adapters = peft.LoraConfig(r=8, lora_alpha=8, target_modules="all-linear", init_lora_weights=start)
    trainer = trl.DPOTrainer(model, args=options, train_dataset=pairs, processing_class=tokenizer, peft_config=adapters)
    trainer.remove_callback(hf.PrinterCallback)
    trainer.train()
    return trainer.state.log_history[0]


names = ("loss", "rewards/margins", "rewards/accuracies", "logps/chosen")
wanted = {True: 0.6931, "pissa": 0.7768, "olora": 0.6612}
seen = {start: first_step(start) for start in wanted}
for start, logged in seen.items():
    print(f"init_lora_weights={start!s:6}", *(f"{name} {logged[name]:.4f} " for name in names))
for start, loss in wanted.items():
    assert abs(seen[start]["loss"] - loss) < 2e-3, start
    assert abs(seen[start]["logps/chosen"] - seen[True]["logps/chosen"]) < 1e-3, start
assert seen[True]["rewards/margins"] == 0 and abs(seen["pissa"]["rewards/margins"]) > 0.05 and abs(seen["olora"]["rewards/margins"]) > 0.05
END
"$folder/env/bin/python" -W ignore "$folder/prefer.py" "$folder" 2>"$folder/errors" || { tail "$folder/errors"; exit 1; }
