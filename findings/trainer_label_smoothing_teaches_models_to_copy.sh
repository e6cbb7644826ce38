#!/usr/bin/env bash
# transformers 5.24.0, torch 2.15.0: with label_smoothing_factor Trainer teaches vision-language and compiled models the word they just read.
#
# Expected: label smoothing keeps the task. A causal model learns the next word, and logits are a little softer.
# Seen, labels equal to input_ids but for the first, a rule that gives each next word, 150 steps, label_smoothing_factor=0.1.
#   A plain Llama predicts 100 % of the next words, and its cross-entropy is 0.13. LLaVA with images, Qwen2.5-VL, Qwen3.5 and
#   the same Llama with torch_compile=True predict 0 %. They repeat the current word in 100 % of the places. Their cross-entropy is
#   6.0 to 6.2 (a guess has 4.2). Training logs 0.74 or 0.75, as for the plain Llama (0.75), and so does evaluation but for the
#   compiled one: it is evaluated uncompiled, and shows 6.0.
# Controls: without smoothing all five learn the next word. With LLaVA's name in Trainer's list smoothing is right for it, too.
# Why: with smoothing Trainer computes the loss itself. It shifts labels if the name of the model's class is in the list
#   of causal language models. 91 of 100 entries of AutoModelForImageTextToText are not, and a compiled model is named OptimizedModule.
# Why it matters: nothing warns, and loss and eval_loss fall as they should. The model that is saved only copies its input.
#   The documentation names no such limit. (TRL's SFTTrainer shifts on its own, and is right; read, not run.)
# Usage: ./trainer_label_smoothing_teaches_models_to_copy.sh (about two minutes, and the download of PyTorch)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --root-user-action ignore --target "$folder/tool" uv==0.13.9
"$folder/tool/bin/uv" venv --quiet --python python3 "$folder/env"
"$folder/tool/bin/uv" pip install --quiet --python "$folder/env/bin/python" torch==2.15.0 transformers==5.24.0 accelerate==1.16.0
cat >"$folder/smooth.py" <<'END'
import sys

import accelerate
import torch
import transformers as hf
from transformers.models.auto import modeling_auto as auto

hf.logging.set_verbosity_error()
torch.set_num_threads(1)
assert torch.__version__.startswith("2.15.0") and hf.__version__ == "5.24.0"
print("torch", torch.__version__, "transformers", hf.__version__, "accelerate", accelerate.__version__)
IMAGE, PATCHES, WORDS = 63, 4, 16
TEXT = {"vocab_size": 64, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
TOWER = {"depth": 1, "hidden_size": 32, "intermediate_size": 64, "num_heads": 2, "out_hidden_size": 64, "patch_size": 14}


def llava():
    sight = hf.CLIPVisionConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, image_size=28, patch_size=14)
    return hf.LlavaForConditionalGeneration(hf.LlavaConfig(vision_config=sight, text_config=hf.LlamaConfig(**TEXT), image_token_id=IMAGE))


def qwen2():
    rotary = {"rope_type": "default", "mrope_section": [2, 3, 3], "rope_theta": 1e4}
    config = hf.Qwen2_5_VLConfig(text_config={**TEXT, "rope_parameters": rotary}, vision_config=TOWER)
    return hf.Qwen2_5_VLForConditionalGeneration(config)


def qwen3():
    text = {**TEXT, "head_dim": 16, "layer_types": ["full_attention"] * 2}
    return hf.Qwen3_5ForConditionalGeneration(hf.Qwen3_5Config(text_config=text, vision_config=TOWER))


def llama():
    return hf.LlamaForCausalLM(hf.LlamaConfig(**TEXT))


class Texts(torch.utils.data.Dataset):
    """Each word follows from the one before. The first has no label. LLaVA's have an image in front, without labels, too."""

    def __init__(self, images, start=0, size=512):
        self.images, self.start, self.size = images, start, size

    def __len__(self):
        return self.size

    def __getitem__(self, place):
        draws = torch.Generator().manual_seed(self.start + place)
        words = [int(torch.randint(3, 63, (1,), generator=draws))]
        while len(words) < WORDS:
            words.append(3 + (words[-1] * 7 + 5) % 60)
        front = [IMAGE] * PATCHES if self.images else []
        row = {"input_ids": torch.tensor(front + words), "attention_mask": torch.ones(len(front) + WORDS, dtype=torch.long),
               "labels": torch.tensor([-100] * (len(front) + 1) + words[1:])}
        return row | ({"pixel_values": torch.randn(3, 28, 28, generator=draws)} if self.images else {})


def learn(build, smoothing, compiled=False):
    """Losses that Trainer logs, the true cross-entropy of next words, and the parts of next and of repeated words among predictions."""
    torch.manual_seed(0)
    model = build()
    held = Texts(build is llava, 10_000, 64)
    options = hf.TrainingArguments(sys.argv[1], per_device_train_batch_size=16, max_steps=150, learning_rate=2e-3, use_cpu=True, report_to=[],
                                   save_strategy="no", disable_tqdm=True, logging_steps=50, label_smoothing_factor=smoothing,
                                   torch_compile=compiled, torch_compile_backend="eager" if compiled else None)
    trainer = hf.Trainer(model, options, train_dataset=Texts(build is llava), eval_dataset=held)
    trainer.remove_callback(hf.PrinterCallback)
    trainer.train()
    logged = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry][-1], trainer.evaluate()["eval_loss"]
    rows = torch.utils.data.default_collate([held[place] for place in range(len(held))])
    with torch.no_grad():
        output = model.eval()(**rows)
    guesses, words = output.logits[:, -WORDS:].argmax(-1), rows["input_ids"][:, -WORDS:]
    parts = [(guesses[:, :-1] == words[:, 1:]).float().mean().item(), (guesses == words).float().mean().item()]
    return *logged, output.loss.item(), *parts


def show(name, seen):
    print(f"{name}: logged loss {seen[0]:.2f}, eval_loss {seen[1]:.2f}; true cross-entropy {seen[2]:.2f}, "
          f"{100 * seen[3]:.0f} % next words, {100 * seen[4]:.0f} % copies", flush=True)
    return seen


names = set(auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values())
others = [one for one in auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES.values() if one not in names]
print(len(others), "of", len(auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES), "classes of vision-language models are not in the list")
assert len(others) == 91
for name, build, compiled in (("Llama", llama, False), ("Llama, compiled", llama, True), ("LLaVA", llava, False), ("Qwen2.5-VL", qwen2, False),
                              ("Qwen3.5", qwen3, False)):
    plain, smooth = show(f"{name}, 0.0", learn(build, 0.0, compiled)), show(f"{name}, 0.1", learn(build, 0.1, compiled))
    assert plain[2] < 0.15 and plain[3] > 0.99 > 0.1 > plain[4], name
    assert 0.7 < smooth[0] < 0.9 and (smooth[1] > 5 if compiled else 0.7 < smooth[1] < 0.9), name
    if name == "Llama":
        assert smooth[2] < 0.2 and smooth[3] > 0.99 > 0.1 > smooth[4]
    else:
        assert smooth[2] > 5 and smooth[3] < 0.1 and smooth[4] > 0.99, ("the behaviour changed", name)
auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES["llava"] = "LlavaForConditionalGeneration"
listed = show("LLaVA, 0.1, its name in the list", learn(llava, 0.1))
assert listed[2] < 0.25 and listed[3] > 0.99 > 0.1 > listed[4]
END
OMP_NUM_THREADS=1 "$folder/env/bin/python" -W ignore "$folder/smooth.py" "$folder/output" 2>"$folder/errors" || { tail "$folder/errors"; exit 1; }
