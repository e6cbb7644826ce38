# SPDX-License-Identifier: Apache-2.0
"""Stands in for the hub of Hugging Face, which tests do not reach: configurations of models by their names there."""

import json
import os

FOLDERS = [os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../models", folder) for folder in ("configs", "siblings")]

# Texts that the hub's files hold beside a vision tower, as the files of Qwen3.5-27B and 397B-A17B do.
BESIDE_A_TOWER = {"qwen3_5_text": "qwen3_5", "qwen3_5_moe_text": "qwen3_5_moe"}


def sizes(model):
    """The plan's sizes, in the words of transformers."""
    values = {"hidden_size": model["hidden"], "num_hidden_layers": model["layers"], "num_attention_heads": model["heads"],
              "vocab_size": model["vocab"], "max_position_embeddings": model["max_positions"], "intermediate_size": model["ffn_hidden"],
              "num_key_value_heads": model["kv_heads"], "tie_word_embeddings": model["tied_embeddings"], "rms_norm_eps": model["norm_epsilon"]}
    if model.get("moe"):
        experts = {"moe_intermediate_size": model["moe"]["expert_ffn_hidden"], "num_experts": model["moe"]["experts"],
                   "num_local_experts": model["moe"]["experts"], "num_experts_per_tok": model["moe"]["experts_per_token"]}
        values.update(experts, head_dim=model["head_dim"])
    if model["type"] == "nemotron_h":
        del values["num_hidden_layers"]  # the pattern has them
        values["hybrid_override_pattern"] = model["pattern"]
        if model.get("moe"):
            values.update(n_routed_experts=model["moe"]["experts"], moe_shared_expert_intermediate_size=model["moe"]["shared_ffn_hidden"])
    scaling = model.get("rotary_scaling")
    if scaling and scaling["kind"] == "llama3":
        values["rope_parameters"] = {"rope_type": "llama3", "rope_theta": model["rotary_base"], "factor": scaling["factor"],
                                     "low_freq_factor": scaling["low_frequency_factor"], "high_freq_factor": scaling["high_frequency_factor"],
                                     "original_max_position_embeddings": scaling["original_positions"]}
    elif model["position"] == "rotary" and not scaling and model["type"] != "gemma4_text":  # which has them by kind of layer
        values["rope_parameters"] = {"rope_type": "default", "rope_theta": model["rotary_base"]}
    return values


def configuration(name, model):
    """The model's own file where the tests have it; else one of its type with the plan's sizes."""
    from transformers import AutoConfig
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES
    rest = name.partition("/")[2]
    stems = [stem.lower() for stem in (rest, "Meta-" + rest, rest.removesuffix("-Base"), rest.replace("Meta-Llama-3-", "Meta-Llama-3.1-"))]
    for folder in FOLDERS:
        for file_name in sorted(os.listdir(folder)):  # OWNER--MODEL.json; NVIDIA's are the same models in 4 bits
            path, stem = os.path.join(folder, file_name), file_name.partition("--")[2].lower().removesuffix(".json").removesuffix("-nvfp4")
            if stem in stems:
                with open(path, encoding="utf-8") as file:
                    values = json.load(file)
                kind = values.pop("model_type")
                classes = MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES if "text_config" in values else MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
                values.setdefault("architectures", [classes.get(kind)])
                return AutoConfig.for_model(kind, **values)
    kind = model["type"]
    if kind in BESIDE_A_TOWER:
        whole = BESIDE_A_TOWER[kind]
        return AutoConfig.for_model(whole, architectures=[MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES[whole]],
                                    text_config={"model_type": kind, **sizes(model)}, tie_word_embeddings=model["tied_embeddings"])
    return AutoConfig.for_model(kind, architectures=[MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[kind]], **sizes(model))
