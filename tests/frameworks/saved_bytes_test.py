# SPDX-License-Identifier: Apache-2.0
"""Compares what a plan says that a layer keeps for its backward pass with what PyTorch keeps, by its hooks on saved tensors.

Usage: saved_bytes_test.py PROGRAMS [NAMES]. PROGRAMS is the folder of mpt-plan; it runs in the Python that has torch (build/frameworks, or
MPT_FRAMEWORKS). Exit code 77: torch is not installed, which is said.

The exported file trains a tiny model of four and of six layers in fp32, and the difference is compared, so that embedding, head and loss
do not count. PyTorch's attention on CPUs keeps what its flash attention on GPUs does.
"""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
SKIPPED = 77
BATCH, SEQUENCE = 2, 64
ON_CPUS = "--execution rms_norm_bytes=4"  # of several kernels there; on GPUs F.rms_norm is one
LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 160, "num_attention_heads": 4,
         "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 256, "max_position_embeddings": 256, "hidden_act": "silu", "rms_norm_eps": 1e-5,
         "rope_theta": 10000.0, "tie_word_embeddings": False}
EXPERTS = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 48, "router_aux_loss_coef": 0.02, "norm_topk_prob": True,
           "decoder_sparse_step": 1, "mlp_only_layers": []}
GPT = {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_embd": 64, "n_head": 4, "n_positions": 256, "vocab_size": 256,
       "activation_function": "gelu_new", "attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0, "layer_norm_epsilon": 1e-5}
# The configuration, the key of its layers, options of mpt-plan, and how far the two may be apart.
MODELS = {
    "llama": (LLAMA, "num_hidden_layers", [], 0.0),
    "llama, one key head": ({**LLAMA, "num_key_value_heads": 1}, "num_hidden_layers", [], 0.0),
    "qwen2, biases": ({**LLAMA, "model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"]}, "num_hidden_layers", [], 0.0),
    "qwen3, norms of heads": ({**LLAMA, "model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"]}, "num_hidden_layers", [], 0.0),
    "gpt2": (GPT, "n_layer", [], 0.0),
    "qwen3_moe": ({**LLAMA, **EXPERTS, "model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"]}, "num_hidden_layers", [], 0.02),
}


def trainer_of(program, config, options, folder):
    """The footprint of the plan's only stage, and the exported file as a module."""
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file)
    plan = os.path.join(folder, "plan.json")
    asked = f"--cluster this-machine:1 --global-batch {BATCH} --micro-batch {BATCH} --seq {SEQUENCE} --framework pytorch --precision fp32 {ON_CPUS}"
    for command in ([program, "--model", os.path.join(folder, "config.json"), *asked.split(), "--recompute", "none", *options, "-o", plan],
                    [program, "export", plan, "--to", "pytorch", "-o", folder]):
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode != 0:
            raise ValueError(" ".join((result.stdout + result.stderr).split())[:400])
    spec = importlib.util.spec_from_file_location("mpt_train_" + os.path.basename(folder), os.path.join(folder, "mpt_train.py"))
    trainer = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(trainer)
    with open(plan, encoding="utf-8") as file:
        return json.load(file)["footprints"][0]["saved_bytes"], trainer


def saved(trainer):
    """Bytes of all tensors that one forward pass saves, each memory once, without the weights."""
    import torch
    trainer.DEVICE = torch.device("cpu")
    model = trainer.make_model(0, trainer.make_mesh())
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.02)
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = tensor  # alive, so that no other tensor gets its memory
        return tensor

    tokens = torch.randint(0, 256, (BATCH, SEQUENCE))
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        model(tokens, tokens)
    return sum(tensor.untyped_storage().nbytes() for tensor in kept.values())


def compare(program, name, folder):
    config, key, options, most = MODELS[name]
    said, real = [], []
    for layers in (4, 6):
        inner = os.path.join(folder, f"{len(os.listdir(folder))}")
        os.makedirs(inner)
        planned, trainer = trainer_of(program, {**config, key: layers}, options, inner)
        said.append(planned)
        real.append(saved(trainer))
    planned, kept = ((values[1] - values[0]) / 2 / (BATCH * SEQUENCE) for values in (said, real))
    return abs(planned / kept - 1) <= most, f"{planned:.1f} bytes for a token and layer, PyTorch keeps {kept:.1f}"


def main():
    program = os.path.join(os.path.abspath(sys.argv[1]), "mpt-plan")
    try:
        import torch.distributed as dist
    except ImportError as error:
        print(f"saved bytes: skipped, because {error.name} is not installed (./scripts/install-frameworks torch)")
        sys.exit(SKIPPED)
    wrong = 0
    names = sys.argv[2:] or list(MODELS)
    sys.argv = sys.argv[:1]
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
        os.makedirs(os.path.join(folder, "plans"))
        for name in names:
            same, text = compare(program, name, os.path.join(folder, "plans"))
            wrong += not same
            print(f"{name}: {text}", flush=True)
        dist.destroy_process_group()
    print(f"saved bytes: {len(names) - wrong} of {len(names)} as PyTorch has them")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
