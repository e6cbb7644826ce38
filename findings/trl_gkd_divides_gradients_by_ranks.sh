#!/usr/bin/env bash
# trl 1.16.0, transformers 5.24.0, torch 2.15.0, DDP: GKDTrainer and GOLDTrainer divide loss and gradient by the number of ranks once too often.
#
# Expected: 8 samples on 1, 2 or 4 ranks give one loss and one gradient, as in SFTTrainer, from which both trainers are made.
# Seen, one step over the same 8 samples with lmbda=0.0, so that nothing is random: 2 and 4 ranks have 0.50 and 0.25 times the loss
#   and the gradient of one rank, in GKDTrainer and in GOLDTrainer.
#   Controls: SFTTrainer has 1.00. GKDTrainer with average_tokens_across_devices=False has 1.00: these samples have equally many labels.
# Why: the sum over a rank's labels is divided by the labels of all ranks, and DDP averages the gradients over ranks again. Trainer and
#   SFTTrainer multiply by the number of ranks for this. The compute_loss of GKD and GOLD takes the count and does not multiply.
# Why it matters: on 64 ranks gradients are a 64th. Clipping at 1.0 never acts, AdamW's epsilon meets smaller gradients, and SGD hardly moves. The
#   logged loss is too small by the same factor, and looks like a better student.
# Usage: ./trl_gkd_divides_gradients_by_ranks.sh (three minutes, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 transformers==5.24.0 trl==1.16.0 \
  accelerate==1.16.0 datasets==5.2.0 numpy==2.4.6
cat >"$folder/ranks.py" <<'END'
import json
import os
import sys

import tokenizers
import torch
import transformers as hf
import trl
from datasets import Dataset
from trl.experimental.gkd import GKDConfig, GKDTrainer
from trl.experimental.gold import GOLDConfig, GOLDTrainer

torch.set_num_threads(1)
hf.logging.set_verbosity_error()
whole = tokenizers.Tokenizer(tokenizers.models.BPE())
whole.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
whole.decoder = tokenizers.decoders.ByteLevel()
whole.train_from_iterator(["abcdefgh"], tokenizers.trainers.BpeTrainer(
    vocab_size=260, initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(), show_progress=False,
    special_tokens=["[pad]", "[eos]", "[user]", "[bot]"]))
tokenizer = hf.PreTrainedTokenizerFast(tokenizer_object=whole, pad_token="[pad]", eos_token="[eos]")
tokenizer.chat_template = ("{% for m in messages %}{{ '[user]' if m.role == 'user' else '[bot]' }}{{ m.content }}"
                           "{{ '' if m.role == 'user' else '[eos]' }}{% endfor %}{% if add_generation_prompt %}[bot]{% endif %}")
draws = torch.Generator().manual_seed(1)
speak = lambda count: "".join("abcdefgh"[i] for i in torch.randint(0, 8, (count,), generator=draws))
ROWS = [{"messages": [{"role": "user", "content": speak(12)}, {"role": "assistant", "content": speak(20)}]} for _ in range(8)]


def model(seed):
    torch.manual_seed(seed)
    return hf.AutoModelForCausalLM.from_config(hf.LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, initializer_range=0.2, pad_token_id=0, bos_token_id=None, eos_token_id=1))


def step(kind, ranks):
    options = dict(per_device_train_batch_size=8 // ranks, max_steps=1, logging_steps=1, optim="sgd", learning_rate=1e-4, max_grad_norm=1e9,
                   output_dir=sys.argv[1], report_to=[], use_cpu=True, bf16=False, gradient_checkpointing=False, disable_tqdm=True,
                   save_strategy="no", average_tokens_across_devices=not kind.endswith("apart"))
    given = dict(model=model(0), train_dataset=Dataset.from_list(ROWS), processing_class=tokenizer)
    if kind == "SFT":
        trainer = trl.SFTTrainer(args=trl.SFTConfig(**options), **given)
    elif kind == "GOLD":
        trainer = GOLDTrainer(teacher_model=model(7), args=GOLDConfig(lmbda=0.0, **options), **given)
    else:
        trainer = GKDTrainer(teacher_model=model(7), args=GKDConfig(lmbda=0.0, **options), **given)
    trainer.train()
    log = trainer.state.log_history[0]
    return log["loss"], float(log["grad_norm"])


found = {kind: step(kind, int(os.environ["WORLD_SIZE"])) for kind in ("SFT", "GKD", "GOLD", "GKD apart")}
if os.environ["RANK"] == "0":
    print("FOUND", json.dumps(found))
if os.environ["WORLD_SIZE"] == "1":
    print("trl", trl.__version__, "transformers", hf.__version__, "torch", torch.__version__)
    assert trl.__version__ == "1.16.0" and hf.__version__ == "5.24.0" and torch.__version__.startswith("2.15.0")
END
for ranks in 1 2 4; do
  OMP_NUM_THREADS=1 "$folder/env/bin/python" -W ignore -m torch.distributed.run --standalone --nproc_per_node "$ranks" \
    "$folder/ranks.py" "$folder/out" >"$folder/log$ranks" 2>"$folder/errors" || { tail "$folder/errors" "$folder/log$ranks"; exit 1; }
done
grep "^trl" "$folder/log1"
python3 - "$folder" <<'END'
import json
import sys

found = {}
for ranks in (1, 2, 4):
    [line] = [line for line in open(f"{sys.argv[1]}/log{ranks}") if line.startswith("FOUND")]
    found[ranks] = json.loads(line[6:])
for kind, (loss, norm) in found[1].items():
    for ranks in (2, 4):
        seen, gradient = found[ranks][kind]
        print(f"{kind}: one rank has a loss of {loss:.4f} and a gradient of {norm:.4f},",
              f"{ranks} ranks {seen / loss:.2f} and {gradient / norm:.2f} times these")
        factor = 1 / ranks if kind in ("GKD", "GOLD") else 1
        assert abs(seen / loss / factor - 1) < 0.02 and abs(gradient / norm / factor - 1) < 0.02, "the behaviour changed"
END
