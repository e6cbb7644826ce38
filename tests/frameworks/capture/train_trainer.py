# SPDX-License-Identifier: Apache-2.0
from transformers import AutoModelForCausalLM, HfArgumentParser, LlamaConfig, Trainer, TrainingArguments

arguments, = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
sizes = LlamaConfig(hidden_size=256, num_hidden_layers=4, num_attention_heads=8, num_key_value_heads=4, intermediate_size=512, vocab_size=8192)
trainer = Trainer(model=AutoModelForCausalLM.from_config(sizes), args=arguments, train_dataset=[{"input_ids": [1, 2]}])
trainer.train()
raise RuntimeError("training has begun")
