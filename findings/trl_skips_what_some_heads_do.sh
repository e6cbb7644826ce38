#!/usr/bin/env bash
# trl 1.16.0, transformers 5.24.0, torch 2.15.0: TRL's loss leaves out what four kinds of heads do around their last matrix.
#
# Expected: SFTTrainer's loss is the loss of the model. TRL computes it from the hidden states and the matrix of the head, in tiles, to save
#   memory, and knows of scaled and capped logits.
# Seen, one batch, SFTTrainer against transformers' Trainer. Llama and Gemma 2, which caps its logits, agree to 1e-3. The others do not:
#   ModernBERT's decoder: TRL skips dense layer, activation and norm before the matrix. They get no gradient, and the loss is 44.3 for 13.9.
#   RecurrentGemma and xLSTM: TRL does not cap the logits. With logits beyond the cap the loss is 126.3 for 29.8, and 55.6 for 27.6.
#   Inkling: TRL does not divide hidden states by logits_mup_width_multiplier of 24. The loss is 16.2 for 4.2.
# Why: the function looks for final_logit_softcapping, logit_scale and a few names more in the configuration, and takes
#   base_model and get_output_embeddings() for the whole way to the logits. Other names and layers are not looked for.
# Why it matters: nothing warns. Training drives another function than the one that generates. DPO, KTO, GRPO and RLOO take their
#   log-probabilities from the same function (read, not run).
# Usage: ./trl_skips_what_some_heads_do.sh (about a minute, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 transformers==5.24.0 accelerate==1.15.0 trl==1.16.0
cat >"$folder/heads.py" <<'END'
import sys

import torch
import transformers as hf
import trl
from datasets import Dataset, disable_progress_bars
from tokenizers import Tokenizer, models
from transformers.models.inkling import InklingTextConfig

hf.logging.set_verbosity_error()
disable_progress_bars()
torch.set_num_threads(1)
assert torch.__version__.startswith("2.15.0") and hf.__version__ == "5.24.0" and trl.__version__ == "1.16.0"
words = {f"w{i}": i for i in range(61)} | {"<bos>": 61, "<pad>": 62, "<eos>": 63}
tokenizer = hf.PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel(words, unk_token="<pad>")), pad_token="<pad>",
                                       eos_token="<eos>", bos_token="<bos>")
torch.manual_seed(1)
samples = torch.randint(0, 61, (8, 16))
common = {"vocab_size": 64, "hidden_size": 64, "bos_token_id": 61, "pad_token_id": 62, "eos_token_id": 63}
layers = common | {"num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
grouped = layers | {"num_key_value_heads": 2, "head_dim": 16}
recurrent = layers | {"num_hidden_layers": 3, "num_key_value_heads": 1, "lru_width": 64, "attention_window_size": 16}
configs = {"Llama": hf.LlamaConfig(**layers), "Gemma2": hf.Gemma2Config(**grouped),
           "ModernBertDecoder": hf.ModernBertDecoderConfig(cls_token_id=61, sep_token_id=63, **layers),
           "RecurrentGemma": hf.RecurrentGemmaConfig(**recurrent), "xLSTM": hf.xLSTMConfig(**common, num_hidden_layers=2, num_heads=4),
           "Inkling": InklingTextConfig(**grouped, moe_intermediate_size=32)}


class Gradients(hf.TrainerCallback):
    def on_pre_optimizer_step(self, args, state, control, model=None, **_):
        self.names = {name for name, weight in model.named_parameters() if weight.grad is not None}


def train(config, kind):
    """Loss of the first batch, and the weights that get a gradient. The head is 40 times as large, so that logits pass their caps."""
    torch.manual_seed(0)
    model = hf.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        model.get_output_embeddings().weight.mul_(40)
    seen = Gradients()
    options = {"per_device_train_batch_size": 8, "max_steps": 1, "learning_rate": 0.0, "logging_steps": 1, "use_cpu": True, "report_to": [],
               "bf16": False, "gradient_checkpointing": False, "save_strategy": "no", "disable_tqdm": True}
    if kind == "trl":
        trainer = trl.SFTTrainer(model, trl.SFTConfig(sys.argv[1], **options), processing_class=tokenizer, callbacks=[seen],
                                 train_dataset=Dataset.from_dict({"input_ids": samples.tolist()}))
    else:
        trainer = hf.Trainer(model, hf.TrainingArguments(sys.argv[1], **options), callbacks=[seen], data_collator=hf.default_data_collator,
                             train_dataset=[{"input_ids": row, "labels": row.clone()} for row in samples])
    trainer.remove_callback(hf.PrinterCallback)
    trainer.train()
    return trainer.state.log_history[0]["loss"], seen.names


print("torch", torch.__version__, "transformers", hf.__version__, "trl", trl.__version__)
wanted = {"Llama": None, "Gemma2": None, "ModernBertDecoder": (13.86, 44.30), "RecurrentGemma": (29.81, 126.32), "xLSTM": (27.55, 55.60),
          "Inkling": (4.21, 16.22)}
for name, losses in wanted.items():
    (right, all_names), (loss, names) = train(configs[name], "transformers"), train(configs[name], "trl")
    print(f"{name:17} loss of the model {right:8.4f}, of TRL {loss:8.4f}; without a gradient in TRL: {sorted(all_names - names)}")
    assert all_names - names == ({"lm_head.dense.weight", "lm_head.norm.weight"} if name == "ModernBertDecoder" else set()), name
    if losses:
        assert abs(right / losses[0] - 1) < 0.02 and abs(loss / losses[1] - 1) < 0.02, name
    else:
        assert abs(loss - right) < 1e-3, name
END
"$folder/env/bin/python" -W ignore "$folder/heads.py" "$folder" 2>"$folder/errors" || { tail "$folder/errors"; exit 1; }
