# SPDX-License-Identifier: Apache-2.0
"""Weights of Hugging Face against transformers itself: tiny random models of each family that mpt-run has.

Usage: weights_test.py DUMP_MODEL PROGRAMS [NAMES]. DUMP_MODEL is tests/runtime/nn/dump_model.cpp's program, PROGRAMS the folder of
mpt-plan and mpt-run. For each family: the runtime's logits of a folder that transformers wrote are those of transformers, to 1e-4 in
fp32, and so are all gradients, in fp64; and what mpt-run trained from these weights and exported gives transformers the loss that mpt-run
has. It runs in the environment of transformers under MPT_FRAMEWORKS or build/frameworks, and is skipped (77) without one.
"""

import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ENVIRONMENTS = os.environ.get("MPT_FRAMEWORKS", os.path.join(os.path.dirname(os.path.dirname(HERE)), "build/frameworks"))

try:
    import torch
    import transformers
    from transformers import AutoConfig, AutoModelForCausalLM
except ImportError:
    python = os.path.join(ENVIRONMENTS, "accelerate", "bin/python")
    if os.path.exists(python) and os.path.realpath(python) != os.path.realpath(sys.executable) and "MPT_AGAIN" not in os.environ:
        os.execve(python, [python, *sys.argv], {**os.environ, "MPT_AGAIN": "1"})
    print("SKIPPED: transformers is not installed; ./scripts/install-frameworks does it")
    sys.exit(77)

transformers.utils.logging.disable_progress_bar()
transformers.utils.logging.set_verbosity_error()
BATCH, SEQUENCE = 2, 12
TINY = dict(vocab_size=48, hidden_size=32, intermediate_size=40, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
            head_dim=8, max_position_embeddings=64, tie_word_embeddings=False, attention_dropout=0.0,
            pad_token_id=None, bos_token_id=None, eos_token_id=None)
EXPERTS = dict(num_experts_per_tok=2, router_aux_loss_coef=0.0)
YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=16, beta_fast=8.0, beta_slow=1.0)
LATENT = dict(TINY, num_key_value_heads=4, head_dim=None, q_lora_rank=12, kv_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=4,
              v_head_dim=6, n_routed_experts=8, num_experts_per_tok=4, n_group=4, topk_group=2, n_shared_experts=1,
              moe_intermediate_size=16, first_k_dense_replace=1, num_nextn_predict_layers=0)
LINEAR = dict(linear_conv_kernel_dim=4, linear_key_head_dim=6, linear_value_head_dim=5, linear_num_key_heads=2, linear_num_value_heads=4,
              rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5))
GATED_EXPERTS = dict(EXPERTS, num_experts=4, moe_intermediate_size=24, shared_expert_intermediate_size=20)
WINDOWS = dict(layer_types=["sliding_attention", "full_attention"] * 2, sliding_window=5)
NEXT_TOKEN_WEIGHT = 0.1  # mpt-run's default
FAMILIES = {
    "llama": ("llama", TINY),
    "mistral": ("mistral", dict(TINY, sliding_window=5)),
    "qwen2": ("qwen2", {**TINY, "head_dim": None}),
    "qwen3": ("qwen3", TINY),
    "qwen3_moe": ("qwen3_moe", dict(TINY, **EXPERTS, num_experts=4, moe_intermediate_size=24, norm_topk_prob=False)),
    "qwen2_moe": ("qwen2_moe", {**TINY, **GATED_EXPERTS, "head_dim": None, "mlp_only_layers": [1]}),
    "qwen3_next": ("qwen3_next", dict(TINY, **GATED_EXPERTS, **LINEAR)),
    "qwen3_next with biases, heads of keys for each": ("qwen3_next", dict(TINY, **GATED_EXPERTS, **{**LINEAR, "linear_num_key_heads": 4},
                                                                          attention_bias=True, norm_topk_prob=False, mlp_only_layers=[0])),
    "qwen3_5": ("qwen3_5_text", dict(TINY, **LINEAR)),
    "qwen3_5_moe": ("qwen3_5_moe_text", dict(TINY, **GATED_EXPERTS, **LINEAR)),
    "mixtral": ("mixtral", dict(TINY, **EXPERTS, num_local_experts=4, sliding_window=None)),
    "smollm3": ("smollm3", dict(TINY, no_rope_layers=[1, 0, 1, 0])),
    "gemma": ("gemma", dict(TINY, tie_word_embeddings=True)),
    "gemma2": ("gemma2", dict(TINY, **WINDOWS, query_pre_attn_scalar=24, attn_logit_softcapping=2.0, final_logit_softcapping=3.0,
                              tie_word_embeddings=True)),
    "gemma3": ("gemma3_text", dict(TINY, **WINDOWS, query_pre_attn_scalar=8, tie_word_embeddings=True)),
    "olmo2": ("olmo2", {**TINY, "head_dim": None}),
    "olmo3": ("olmo3", {**TINY, **WINDOWS, "head_dim": None}),
    "granite": ("granite", dict({**TINY, "head_dim": None}, embedding_multiplier=12.0, attention_multiplier=0.2, residual_multiplier=0.22,
                                logits_scaling=0.5)),
    "glm4_moe": ("glm4_moe", dict(TINY, n_routed_experts=8, num_experts_per_tok=2, n_shared_experts=1, moe_intermediate_size=16,
                                  first_k_dense_replace=1, use_qk_norm=True, attention_bias=True, routed_scaling_factor=1.5,
                                  num_mtp_layers=0)),
    "gpt_oss": ("gpt_oss", dict(TINY, **EXPERTS, **WINDOWS, num_local_experts=4, swiglu_limit=0.9,
                                rope_parameters=dict(YARN, rope_theta=150000.0, truncate=False))),
    "deepseek_v2": ("deepseek_v2", dict(LATENT, topk_method="group_limited_greedy", routed_scaling_factor=2.0, norm_topk_prob=False)),
    "deepseek_v3": ("deepseek_v3", dict(LATENT, rope_parameters=dict(YARN, rope_theta=10000.0, mscale=1.0, mscale_all_dim=1.0))),
    "deepseek_v3 without query rank": ("deepseek_v3", dict(LATENT, q_lora_rank=None)),
    "deepseek_v3 with next tokens": ("deepseek_v3", dict(LATENT, num_nextn_predict_layers=2)),
    "glm4_moe with next tokens": ("glm4_moe", dict(TINY, n_routed_experts=8, num_experts_per_tok=2, n_shared_experts=1,
                                                   moe_intermediate_size=16, first_k_dense_replace=1, use_qk_norm=True,
                                                   num_nextn_predict_layers=1)),
}


def run(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def random_model(kind, values, folder):
    """Weights far from their start, so that norms, biases and sinks matter; transformers writes them."""
    torch.manual_seed(7)
    config = AutoConfig.for_model(kind, **{key: value for key, value in values.items() if value is not None or key != "head_dim"})
    config._experts_implementation = "eager"
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * (0.2 if parameter.dim() > 1 else 0.1))
        for name, buffer in model.named_buffers():
            if name.endswith("e_score_correction_bias"):
                buffer.add_(torch.randn_like(buffer) * 0.1)
    model.save_pretrained(folder)
    modules = values.get("num_nextn_predict_layers") or 0
    return model, random_modules(model, modules, folder) if modules else None


def random_modules(model, count, folder):
    """The same of next-token modules, which transformers reads and does not write: they are added to the folder."""
    from transformers.modeling_layers import MtpModel
    modules = MtpModel(model, count).float().eval()
    with torch.no_grad():
        for name, tensor in [*modules.layers.named_parameters(), *modules.layers.named_buffers()]:
            tensor.normal_(0.0, 0.2 if tensor.dim() > 1 else 0.1)
            if "norm" in name:
                tensor.add_(1.0)
    add_tensors(folder, published_modules(model, modules, {}, os.path.join(folder, "modules")))
    return modules


def published_modules(model, modules, gradients, folder):
    """Tensors by the names that checkpoints have: the last layer of a model that has a module's layer there gives its names."""
    from safetensors.torch import load_file
    tensors, last = {}, model.config.num_hidden_layers - 1
    for depth, module in enumerate(modules.layers):
        state = {**module.state_dict(), **gradients.get(depth, {})}
        block = {name.removeprefix("mtp_block."): tensor for name, tensor in state.items() if name.startswith("mtp_block.")}
        model.save_pretrained(folder, state_dict={**model.state_dict(), **{f"model.layers.{last}.{name}": t for name, t in block.items()}})
        to = f"model.layers.{last + 1 + depth}."
        for name, tensor in load_file(os.path.join(folder, "model.safetensors")).items():
            if name.startswith(f"model.layers.{last}."):
                tensors[to + name.removeprefix(f"model.layers.{last}.")] = tensor
        for name in ("enorm", "hnorm", "eh_proj"):
            tensors[f"{to}{name}.weight"] = state[f"{name}.weight"].clone()
        tensors[to + "shared_head.norm.weight"] = state["post_norm.weight"].clone()
    return tensors


def add_tensors(folder, tensors):
    from safetensors.torch import load_file, save_file
    file = os.path.join(folder, "model.safetensors")
    save_file({**load_file(file), **tensors}, file, metadata={"format": "pt"})


def next_token_losses(model, modules, tokens, targets):
    """Of each module, which reads the targets of the head before it. targets [1 + modules, batch, sequence]"""
    hidden, losses = model.model(tokens).last_hidden_state, []
    positions = torch.arange(tokens.shape[1])[None]
    for depth in range(modules.num_mtp_layers):
        hidden = modules.forward_layer(depth, hidden, positions, None, input_ids=targets[depth])
        losses.append(torch.nn.functional.cross_entropy(model.lm_head(hidden).flatten(0, 1), targets[depth + 1].flatten()))
    return losses


def worst(ours, theirs):
    return (ours - theirs).abs().max().item()


def published(model, folder):
    """Gradients by the names and shapes that transformers writes: it writes the model that has them for weights."""
    gradients = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    state = {**model.state_dict(), **gradients}
    if model.config.tie_word_embeddings:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model.save_pretrained(folder, state_dict=state)
    from safetensors.torch import load_file
    return load_file(os.path.join(folder, "model.safetensors"))


def check_given(kind, values, dump, folder):
    """What the runtime makes of a folder that transformers wrote."""
    model, modules = random_model(kind, values, folder)
    for precision, limit in (("float32", 1e-4), ("float64", 2e-5)):
        ours = json.loads(run(dump, folder, BATCH, SEQUENCE, precision))
        model = model.to(getattr(torch, precision))
        tokens, targets = (torch.tensor(ours[key]).view(-1, BATCH, SEQUENCE) for key in ("tokens", "targets"))
        tokens, all_targets, targets = tokens[0], targets, targets[0]
        logits = model(tokens).logits
        theirs = logits.log_softmax(-1).flatten(0, 1)
        difference = worst(torch.tensor(ours["logits"], dtype=torch.float64).log_softmax(-1), theirs.double())
        assert difference < limit, f"logits in {precision} differ by {difference:.1e}"
    model.zero_grad()
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
    assert abs(loss.item() - ours["loss"]) < 1e-5, f"loss {ours['loss']}, transformers {loss.item()}"
    if modules:
        modules = modules.double()
        modules.zero_grad()
        further = sum(next_token_losses(model, modules, tokens, all_targets)) / modules.num_mtp_layers
        assert abs(further.item() - ours["next_token_loss"]) < 1e-5, f"next-token loss {ours['next_token_loss']}, {further.item()}"
        loss = loss + NEXT_TOKEN_WEIGHT * further
    loss.backward()
    theirs = published(model, os.path.join(folder, "gradients"))
    if modules:
        gradients = {depth: {name: p.grad.clone() for name, p in module.named_parameters()} for depth, module in enumerate(modules.layers)}
        theirs.update(published_modules(model, modules, gradients, os.path.join(folder, "gradients")))
    largest = 0.0
    for name, gradient in theirs.items():
        if name.endswith("e_score_correction_bias") or (name == "lm_head.weight" and model.config.tie_word_embeddings):
            continue
        assert name in ours["gradients"], f"no gradient of {name}"
        own = torch.tensor(ours["gradients"][name], dtype=torch.float64)
        scale = gradient.abs().max().item()
        relative = worst(own, gradient.double().flatten()) / max(scale, 1e-9)
        assert relative < 1e-4, f"gradient of {name} differs by {relative:.1e} of its largest element"
        largest = max(largest, relative)
    return f"logits within {difference:.1e}, {len(theirs)} gradients within {largest:.1e}"


def losses_of(log, key="loss"):
    with open(log, encoding="utf-8") as file:
        return [row[key] for row in map(json.loads, file) if key in row]


def check_modules(model, source, tokens, ours):
    """The exported next-token modules as transformers loads them itself."""
    from transformers.modeling_layers import MtpModel
    layers, count = model.config.num_hidden_layers, model.config.num_mtp_layers
    model._keys_to_ignore_on_load_unexpected = [rf"model\.layers\.{layers + depth}\..*" for depth in range(count)]
    modules = MtpModel.from_pretrained(model)
    sequence = tokens.shape[1] - 1 - count
    targets = torch.stack([tokens[:, 1 + depth:1 + depth + sequence] for depth in range(count + 1)])
    theirs = sum(next_token_losses(model, modules, tokens[:, :sequence], targets)).item() / count
    assert abs(theirs - ours) < 1e-4, f"next-token loss of {os.path.basename(source)} weights {ours}, transformers {theirs}"


def check_trained(programs, given, folder):
    """A training from that folder over four ranks, and what it exports."""
    text = "!*(+ -), /.$& '#%"  # bytes within the vocabulary; one window is the whole text
    data, plan, log, checkpoints, exported, again = (os.path.join(folder, name) for name in (
        "text.txt", "plan.json", "run.jsonl", "checkpoints", "exported", "again.jsonl"))
    with open(data, "w", encoding="utf-8") as file:
        file.write(text)
    with open(f"{given}/config.json", encoding="utf-8") as file:
        config = json.load(file)
    modules = config.get("num_nextn_predict_layers", config.get("num_mtp_layers")) or 0
    run(f"{programs}/mpt-plan", "--model", f"{given}/config.json", "--cluster", "this-machine:4", "--framework", "mpt", "--tp", 2, "--pp", 2,
        "--dp", 1, "--global-batch", 4, "--seq", len(text) - 1 - modules, "-o", plan)
    run(f"{programs}/mpt-run", plan, "--data", data, "--data-format", "text", "--steps", 5, "--init", given, "--log", log, "--checkpoints", checkpoints, "--lr", "1e-2")
    run(f"{programs}/mpt-run", "export", checkpoints, exported)
    run(f"{programs}/mpt-run", plan, "--data", data, "--data-format", "text", "--steps", 1, "--init", exported, "--log", again)
    tokens = torch.tensor([list(text.encode())])
    for source, ours in ((given, losses_of(log)[0]), (exported, losses_of(again)[0])):
        model, missing = AutoModelForCausalLM.from_pretrained(source, attn_implementation="eager", dtype=torch.float32, output_loading_info=True)
        apart = tuple(f"model.layers.{config['num_hidden_layers'] + depth}." for depth in range(modules))
        unexpected = [name for name in missing["unexpected_keys"] if not name.startswith(apart)] if apart else missing["unexpected_keys"]
        assert not missing["missing_keys"] and not unexpected, f"{source}: {missing}"
        end = tokens.shape[1] - modules
        theirs = torch.nn.functional.cross_entropy(model(tokens[:, :end - 1]).logits.flatten(0, 1), tokens[:, 1:end].flatten()).item()
        assert abs(theirs - ours) < 1e-4, f"loss of {os.path.basename(source)} weights {ours}, transformers {theirs}"
        if modules:
            check_modules(model, source, tokens, losses_of(log if source == given else again, "next_token_loss")[0])
    assert theirs < 0.9 * losses_of(log)[0], f"training changed nothing: {losses_of(log)[0]}, then {theirs}"
    return f"trained from {losses_of(log)[0]:.3f} to {theirs:.3f}"


def main():
    dump, programs = sys.argv[1], sys.argv[2]
    failed = []
    for name in sys.argv[3:] or FAMILIES:
        kind, values = FAMILIES[name]
        with tempfile.TemporaryDirectory() as folder:
            try:
                given = os.path.join(folder, "given")
                said = check_given(kind, values, dump, given)
                said += "; " + check_trained(programs, given, folder)
                print(f"{name}: {said}", flush=True)
            except Exception as error:  # whatever transformers raises is a verdict
                failed.append(name)
                print(f"{name}: FAILED: {error}", flush=True)
    sys.exit(f"{len(failed)} of {len(sys.argv[3:] or FAMILIES)} families fail: {', '.join(failed)}" if failed else 0)


main()
