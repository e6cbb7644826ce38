# SPDX-License-Identifier: Apache-2.0
"""Hugging Face folders both ways, with names and arrangement as transformers has them, against PyTorch.

A reference of each family is written here over the published names (modeling_gpt2.py, modeling_llama.py,
modeling_qwen3.py, modeling_mixtral.py). It makes weights that mpt-run starts with, whose first loss must be the
reference's; and it computes the loss of what mpt-run trained and exported.

Usage: hugging_face_reference.py BIN_FOLDER. Exits with 77, which ctest takes for a skip, without PyTorch.
"""

import json
import math
import os
import struct
import subprocess
import sys
import tempfile

try:
    import torch
    import torch.nn.functional as F
except ImportError:
    print("SKIPPED: python3-torch is not installed")
    sys.exit(77)

BIN = sys.argv[1]
SEQUENCE, BATCH = 32, 8
NAMES = {torch.float32: "F32", torch.bfloat16: "BF16"}
TYPES = {name: kind for kind, name in NAMES.items()}

LLAMA = dict(hidden_act="silu", hidden_size=32, intermediate_size=48, max_position_embeddings=64, num_attention_heads=4,
             num_hidden_layers=2, num_key_value_heads=2, rms_norm_eps=1e-5, rope_theta=10000.0, vocab_size=256)
CONFIGS = {
    "gpt2": dict(model_type="gpt2", activation_function="gelu_new", layer_norm_epsilon=1e-5, n_embd=32, n_head=4,
                 n_inner=96, n_layer=2, n_positions=64, vocab_size=256, tie_word_embeddings=True),
    "llama": dict(LLAMA, model_type="llama", head_dim=8, tie_word_embeddings=False,
                  rope_scaling=dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                    original_max_position_embeddings=32)),
    "qwen2": dict(LLAMA, model_type="qwen2", tie_word_embeddings=True),
    "qwen3": dict(LLAMA, model_type="qwen3", head_dim=16, tie_word_embeddings=False),
    "mixtral": dict(LLAMA, model_type="mixtral", num_local_experts=4, num_experts_per_tok=2, head_dim=8,
                    tie_word_embeddings=False),
}


def write_safetensors(path, tensors):
    header, at = {}, 0
    for name, t in tensors.items():
        size = t.numel() * t.element_size()
        header[name] = dict(dtype=NAMES[t.dtype], shape=list(t.shape), data_offsets=[at, at + size])
        at += size
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for t in tensors.values():
            f.write(bytes(t.contiguous().view(torch.uint8).reshape(-1).tolist()))


def read_safetensors(path):
    with open(path, "rb") as f:
        data = f.read()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + length])
    out = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        flat = torch.frombuffer(bytearray(data[begin:end]), dtype=TYPES[entry["dtype"]])
        out[name] = flat.view(entry["shape"]).double()
    return out


def read_folder(folder):
    index = os.path.join(folder, "model.safetensors.index.json")
    if not os.path.exists(index):
        return read_safetensors(os.path.join(folder, "model.safetensors"))
    out = {}
    for file in set(json.load(open(index))["weight_map"].values()):
        out.update(read_safetensors(os.path.join(folder, file)))
    return out


def gpt2_shapes(c):
    h = c["n_embd"]
    shapes = {"transformer.wte.weight": (c["vocab_size"], h), "transformer.wpe.weight": (c["n_positions"], h)}
    for l in range(c["n_layer"]):
        p = f"transformer.h.{l}."
        for norm in ("ln_1", "ln_2"):
            shapes.update({p + norm + ".weight": (h,), p + norm + ".bias": (h,)})
        for name, rows, columns in (("attn.c_attn", h, 3 * h), ("attn.c_proj", h, h), ("mlp.c_fc", h, c["n_inner"]),
                                    ("mlp.c_proj", c["n_inner"], h)):
            shapes.update({p + name + ".weight": (rows, columns), p + name + ".bias": (columns,)})
    shapes.update({"transformer.ln_f.weight": (h,), "transformer.ln_f.bias": (h,)})
    return shapes


def llama_shapes(c):
    h, f, d = c["hidden_size"], c["intermediate_size"], c.get("head_dim", c["hidden_size"] // c["num_attention_heads"])
    queries, keys = c["num_attention_heads"] * d, c["num_key_value_heads"] * d
    shapes = {"model.embed_tokens.weight": (c["vocab_size"], h), "model.norm.weight": (h,)}
    for l in range(c["num_hidden_layers"]):
        p = f"model.layers.{l}."
        shapes.update({p + "input_layernorm.weight": (h,), p + "post_attention_layernorm.weight": (h,)})
        for name, rows in (("q", queries), ("k", keys), ("v", keys)):
            shapes[p + f"self_attn.{name}_proj.weight"] = (rows, h)
            if c["model_type"] == "qwen2":
                shapes[p + f"self_attn.{name}_proj.bias"] = (rows,)
        shapes[p + "self_attn.o_proj.weight"] = (h, queries)
        if c["model_type"] == "qwen3":
            shapes.update({p + "self_attn.q_norm.weight": (d,), p + "self_attn.k_norm.weight": (d,)})
        if c["model_type"] == "mixtral":
            shapes[p + "block_sparse_moe.gate.weight"] = (c["num_local_experts"], h)
            for e in range(c["num_local_experts"]):
                expert = p + f"block_sparse_moe.experts.{e}."
                shapes.update({expert + "w1.weight": (f, h), expert + "w2.weight": (h, f), expert + "w3.weight": (f, h)})
        else:
            shapes.update({p + "mlp.gate_proj.weight": (f, h), p + "mlp.up_proj.weight": (f, h),
                           p + "mlp.down_proj.weight": (h, f)})
    if not c["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (c["vocab_size"], h)
    return shapes


def rope_frequencies(c, d):
    frequency = c["rope_theta"] ** (-torch.arange(0, d, 2).double() / d)
    s = c.get("rope_scaling")
    if not s:
        return frequency
    wavelength = 2 * math.pi / frequency
    original = s["original_max_position_embeddings"]
    smooth = (original / wavelength - s["low_freq_factor"]) / (s["high_freq_factor"] - s["low_freq_factor"])
    return frequency * torch.where(wavelength > original / s["low_freq_factor"], 1 / s["factor"],
                                   torch.where(wavelength < original / s["high_freq_factor"], 1.0,
                                               (1 - smooth) / s["factor"] + smooth))


def rms(x, weight, c):
    return x / (x.pow(2).mean(-1, keepdim=True) + c["rms_norm_eps"]).sqrt() * weight


def attend(q, k, v):
    """q, k, v [batch, heads, sequence, d]"""
    k, v = (t.repeat_interleave(q.shape[1] // k.shape[1], 1) for t in (k, v))
    score = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    hidden = torch.ones(score.shape[-2:], dtype=torch.bool).triu(1)
    out = score.masked_fill(hidden, -math.inf).softmax(-1) @ v
    return out.transpose(1, 2).flatten(2)


def heads(x, count):
    return x.unflatten(-1, (count, -1)).transpose(1, 2)


def llama_loss(c, w, tokens, targets):
    x = w["model.embed_tokens.weight"][tokens]
    a, kv = c["num_attention_heads"], c["num_key_value_heads"]
    for l in range(c["num_hidden_layers"]):
        p = f"model.layers.{l}."
        y = rms(x, w[p + "input_layernorm.weight"], c)
        q, k, v = (heads(F.linear(y, w[p + f"self_attn.{n}_proj.weight"], w.get(p + f"self_attn.{n}_proj.bias")), h)
                   for n, h in (("q", a), ("k", kv), ("v", kv)))
        if c["model_type"] == "qwen3":
            q, k = rms(q, w[p + "self_attn.q_norm.weight"], c), rms(k, w[p + "self_attn.k_norm.weight"], c)
        angle = torch.arange(tokens.shape[1])[:, None] * rope_frequencies(c, q.shape[-1])[None]
        cosine, sine = (torch.cat((t, t), -1) for t in (angle.cos(), angle.sin()))
        half = q.shape[-1] // 2
        q, k = (t * cosine + torch.cat((-t[..., half:], t[..., :half]), -1) * sine for t in (q, k))
        x = x + F.linear(attend(q, k, v), w[p + "self_attn.o_proj.weight"])
        y = rms(x, w[p + "post_attention_layernorm.weight"], c)
        if c["model_type"] == "mixtral":
            top, chosen = F.linear(y, w[p + "block_sparse_moe.gate.weight"]).softmax(-1).topk(c["num_experts_per_tok"], -1)
            weight = torch.zeros(*y.shape[:2], c["num_local_experts"], dtype=y.dtype).scatter(
                -1, chosen, top / top.sum(-1, keepdim=True))
            for e in range(c["num_local_experts"]):
                w1, w2, w3 = (w[p + f"block_sparse_moe.experts.{e}.w{i}.weight"] for i in (1, 2, 3))
                x = x + F.linear(F.silu(F.linear(y, w1)) * F.linear(y, w3), w2) * weight[..., e:e + 1]
        else:
            gate, up, down = (w[p + f"mlp.{n}_proj.weight"] for n in ("gate", "up", "down"))
            x = x + F.linear(F.silu(F.linear(y, gate)) * F.linear(y, up), down)
    head = w["model.embed_tokens.weight" if c["tie_word_embeddings"] else "lm_head.weight"]
    return F.cross_entropy(F.linear(rms(x, w["model.norm.weight"], c), head).flatten(0, 1), targets.flatten())


def gpt2_loss(c, w, tokens, targets):
    norm = lambda x, p: F.layer_norm(x, x.shape[-1:], w[p + ".weight"], w[p + ".bias"], c["layer_norm_epsilon"])
    conv = lambda x, p: x @ w[p + ".weight"] + w[p + ".bias"]
    x = w["transformer.wte.weight"][tokens] + w["transformer.wpe.weight"][:tokens.shape[1]]
    for l in range(c["n_layer"]):
        p = f"transformer.h.{l}."
        q, k, v = (heads(t, c["n_head"]) for t in conv(norm(x, p + "ln_1"), p + "attn.c_attn").chunk(3, -1))
        x = x + conv(attend(q, k, v), p + "attn.c_proj")
        x = x + conv(F.gelu(conv(norm(x, p + "ln_2"), p + "mlp.c_fc"), approximate="tanh"), p + "mlp.c_proj")
    logits = norm(x, "transformer.ln_f") @ w["transformer.wte.weight"].T
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def run(*command):
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}")
    return done.stdout


def losses_of(log):
    return [row["loss"] for row in map(json.loads, open(log)) if "loss" in row]


def expect_near(what, got, want, tolerance):
    error = abs(got - want) / want
    print(f"  {what}: {got:.7f}, PyTorch {want:.7f}")
    if not error < tolerance:
        sys.exit(f"{what} differs by {error:.1e}")


def check(name, folder, text):
    config = CONFIGS[name]
    shapes, loss = (gpt2_shapes(config), gpt2_loss) if name == "gpt2" else (llama_shapes(config), llama_loss)
    torch.manual_seed(3)
    weights = {n: (1 if len(s) == 1 and "bias" not in n else 0) + 0.1 * torch.randn(s) for n, s in shapes.items()}
    given = f"{folder}/{name}"
    os.makedirs(given)
    json.dump(config, open(f"{given}/config.json", "w"))
    half = len(weights) // 2  # two shards and their index
    parts = [dict(list(weights.items())[:half]), dict(list(weights.items())[half:])]
    index = {}
    for i, part in enumerate(parts):
        file = f"model-{i + 1:05}-of-00002.safetensors"
        write_safetensors(f"{given}/{file}", part)
        index.update({n: file for n in part})
    json.dump(dict(metadata={}, weight_map=index), open(f"{given}/model.safetensors.index.json", "w"))
    # One window is the whole text: every sample shows it.
    data = open(text, "rb").read()
    tokens = torch.tensor(list(data[:-1])).view(1, -1)
    targets = torch.tensor(list(data[1:])).view(1, -1)
    plan, log, checkpoints = f"{given}/plan.json", f"{given}/run.jsonl", f"{given}/checkpoints"
    run(f"{BIN}/mpt-plan", "--model", f"{given}/config.json", "--cluster", "this-machine:4", "--tp", 2, "--pp", 2,
        "--dp", 1, "--global-batch", BATCH, "--seq", SEQUENCE, "-o", plan)
    run(f"{BIN}/mpt-run", plan, "--data", text, "--steps", 5, "--init", given, "--log", log, "--checkpoints", checkpoints,
        "--lr", "1e-2")
    print(name)
    double = {n: t.double() for n, t in weights.items()}
    expect_near("loss of given weights", losses_of(log)[0], loss(config, double, tokens, targets).item(), 1e-6)
    exported, again = f"{given}/exported", f"{given}/again.jsonl"
    run(f"{BIN}/mpt-run", "export", checkpoints, exported, "--shard-gib", "0.00002")
    if {n: tuple(t.shape) for n, t in read_folder(exported).items()} != {n: tuple(s) for n, s in shapes.items()}:
        sys.exit("exported names or shapes differ from those given")
    run(f"{BIN}/mpt-run", plan, "--data", text, "--steps", 1, "--init", exported, "--log", again)
    trained = loss(config, read_folder(exported), tokens, targets).item()
    expect_near("loss of trained weights", losses_of(again)[0], trained, 1e-6)
    if not trained < 0.9 * losses_of(log)[0]:
        sys.exit("training changed nothing")
    bf16 = f"{given}/bf16"
    run(f"{BIN}/mpt-run", "export", checkpoints, bf16, "--type", "bf16")
    expect_near("loss of trained weights in bf16", loss(config, read_folder(bf16), tokens, targets).item(), trained, 2e-2)
    written = json.load(open(f"{exported}/config.json"))
    for key, value in config.items():
        if written.get(key, value if key == "head_dim" else None) != value:
            sys.exit(f"config.json: {key} is {written.get(key)}, was {value}")


with tempfile.TemporaryDirectory() as scratch:
    sample = f"{scratch}/text.txt"
    open(sample, "w").write("a text of 33 bytes, of all small.")
    for family in CONFIGS:
        check(family, scratch, sample)
