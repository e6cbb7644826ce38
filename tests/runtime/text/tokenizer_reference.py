#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""mpt-run tokenize against the package `tokenizers`, token for token, and its files as megatron-core reads them.

The tokenizers of the hubs cannot be loaded here. So small ones are trained, each with the normalizer, pre-tokenizer, post-processor and
model options of one of them: GPT-2, Llama 3, Qwen, Gemma, Mistral (old and new), DeepSeek and StarCoder.
Usage: tokenizer_reference.py build/release/bin [MB of text, 1]"""

import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
MEGATRON = Path(os.environ.get("MPT_FRAMEWORKS", ROOT / "build/frameworks")) / "megatron"
IN_IT = ("A person's words: it's 12,345.67 or 1/2; we'LL see I'ſt ŉ. <s>", "你好，世界。こんにちは 안녕하세요", "Привет, мир! Γειά σου", "مرحبا بالعالم 123",
         "नमस्ते दुनिया ०१२", "שלום עולם", "\uac00\u11a7\u11a8 \uac00\u11a7", "Cafe\u0301 café \u1e9b\u0323 Å Å ﬁ ²", "👩‍👩‍👧‍👦 🇩🇪 é\u0301 \u200d\u00ad", "a\u00a0b\u2003c\u3000d\u2028e\u0085f\x1c",
         "\t\tif (x) {\n\n\n    return;\r\n}\r\r\n  \n", "     ", "\n", " leading", "trailing  ", "▁already▁marked", "<|endoftext|><|endoftext|> <|user|>  \n x",
         "<0xE2> <s></s><s> a <s>b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "x" * 300 + " " * 300, "ABC abc <extra> EXTRA extra", "\x00\x01")


def needs_tokenizers():
    """Runs in the megatron environment, where the package is, if this interpreter lacks it."""
    try:
        import tokenizers
    except ImportError:
        python = MEGATRON / "bin/python"
        if not python.exists() or os.environ.get("MPT_TRIED"):
            print("skipped: no package `tokenizers`: ./scripts/install-frameworks megatron")
            sys.exit(77)
        os.execve(python, [str(python), *sys.argv], {**os.environ, "MPT_TRIED": "1"})
    return tokenizers


def own_text(megabytes):
    """Sources and pages of this tree, lines of many scripts, and drawn strings."""
    files = sorted(p for kind in ("*.cpp", "*.h", "*.md", "*.py", "*.json") for p in ROOT.glob(f"[bcdmprt]*/**/{kind}") if p.stat().st_size < 300_000)
    random.Random(1).shuffle(files)
    texts, left = list(IN_IT), megabytes * 700_000
    for file in files:
        text = file.read_text(encoding="utf-8", errors="ignore")
        texts.append(text)
        left -= len(text)
        if left < 0:
            break
    draw = random.Random(2)
    spans = [(0x20, 0x7f)] * 6 + [(0xa0, 0x24f), (0x300, 0x36f), (0x370, 0x52f), (0x590, 0x6ff), (0x900, 0x97f), (0xe00, 0xe7f), (0x1100, 0x11ff),
                                  (0x2000, 0x206f), (0x2150, 0x218f), (0x3040, 0x30ff), (0x4e00, 0x9fff), (0xac00, 0xd7a3), (0xff00, 0xffef), (0x1f300, 0x1f64f)]
    for _ in range(max(300, megabytes * 900)):
        words = []
        for _ in range(draw.randrange(1, 60)):
            low, high = draw.choice(spans)
            words.append("".join(chr(draw.randint(low, high)) for _ in range(draw.randrange(1, 9))))
            words.append(draw.choice([" ", " ", "  ", "\n", "\r\n", "", "'s", "<|endoftext|>", "</s>", "▁"]))
        texts.append("".join(words))
    return texts


def kinds(t):
    """Name: tokenizer without a vocabulary, pre-tokenizer to train with, special tokens."""
    from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers as pre, processors
    from tokenizers.processors import TemplateProcessing
    contractions = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
    llama3 = contractions + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    qwen = llama3.replace("{1,3}", "")
    deepseek = r"[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    bytes_only = pre.ByteLevel(add_prefix_space=False, use_regex=False)

    def split(pattern):
        return pre.Split(Regex(pattern), "isolated")

    def made(pre_tokenizer, normalizer=None, post=None, **options):
        tokenizer = Tokenizer(models.BPE(**options))
        if normalizer:
            tokenizer.normalizer = normalizer
        if pre_tokenizer:
            tokenizer.pre_tokenizer = pre_tokenizer
        if post:
            tokenizer.post_processor = post
        return tokenizer

    def begins(token):
        return TemplateProcessing(single=f"{token} $A", pair=f"{token} $A {token} $B", special_tokens=[(token, 0)])

    spiece = dict(unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    marks = pre.Metaspace(prepend_scheme="always")
    old_marks = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    return {
        "gpt2": (made(pre.ByteLevel(add_prefix_space=False), post=processors.ByteLevel(trim_offsets=False)), None, ["<|endoftext|>"]),
        "llama3": (made(pre.Sequence([split(llama3), bytes_only]), post=processors.Sequence([processors.ByteLevel(), begins("<|begin|>")]),
                        ignore_merges=True), None, ["<|begin|>", "<|endoftext|>"]),
        "qwen": (made(pre.Sequence([split(qwen), bytes_only]), normalizers.NFC()), None, ["<|endoftext|>"]),
        "deepseek": (made(pre.Sequence([split(r"\p{N}{1,3}"), split("[一-龥぀-ゟ゠-ヿ]+"), split(deepseek), bytes_only])), None, ["<|endoftext|>"]),
        "starcoder": (made(pre.Sequence([pre.Digits(individual_digits=True), pre.ByteLevel(add_prefix_space=True)])), None, ["<|endoftext|>"]),
        "gemma": (made(pre.Split(" ", "merged_with_previous"), normalizers.Replace(" ", "▁"), begins("<bos>"), **spiece), marks,
                  ["<bos>", "<unk>", AddedToken("\n\n", normalized=False), AddedToken("▁▁", normalized=False)]),
        "mistral": (made(None, old_marks, begins("<s>"), **spiece), marks, ["<s>", "<unk>", "</s>"]),
        "mistral-new": (made(pre.Metaspace(prepend_scheme="first", split=False), None, begins("<s>"), **spiece), marks, ["<s>", "<unk>", "</s>"]),
        "crossing": (made(None, normalizers.Sequence([normalizers.NFC(), normalizers.Replace(" ", "▁")]), **spiece), None, ["<unk>"]),
        "vanishing": (made(pre.Metaspace(prepend_scheme="always", split=False), normalizers.NFC()), None, []),
    }


def trained(t, name, kind, texts):
    from tokenizers import AddedToken, decoders, models, trainers
    tokenizer, train_with, special = kind
    target = tokenizer.pre_tokenizer
    byte_level = "ByteLevel" in repr(target)
    if train_with:
        tokenizer.pre_tokenizer = train_with
    alphabet = t.pre_tokenizers.ByteLevel.alphabet() if byte_level else []
    fallback = [f"<0x{b:02X}>" for b in range(256)] if getattr(tokenizer.model, "byte_fallback", False) else []
    plain = [s for s in special if isinstance(s, str)]
    trainer = trainers.BpeTrainer(vocab_size=1500, special_tokens=plain + fallback, initial_alphabet=alphabet, limit_alphabet=700, show_progress=False,
                                  max_token_length=12)
    tokenizer.train_from_iterator([text[:3000] for text in texts[:60 if name == "crossing" else 250]], trainer)
    data = json.loads(tokenizer.to_str())
    data["added_tokens"] = [a for a in data["added_tokens"] if a["content"] not in fallback]
    if train_with:  # as the file has it, not as it was trained
        tokenizer.pre_tokenizer = target or t.pre_tokenizers.Sequence([])
        data["pre_tokenizer"] = json.loads(tokenizer.to_str())["pre_tokenizer"] if target else None
    tokenizer = t.Tokenizer.from_str(json.dumps(data))
    tokenizer.add_special_tokens([s for s in special if not isinstance(s, str)])
    tokenizer.add_tokens([AddedToken("extra", normalized=True), AddedToken("<|user|>", normalized=False)])
    return tokenizer


def indexed(prefix):
    """Documents of the pair, as megatron-core reads them; the index alone where it is not installed."""
    import numpy
    try:
        from megatron.core.datasets.indexed_dataset import IndexedDataset
    except ImportError:
        head = numpy.fromfile(prefix + ".idx", numpy.uint8, 18)
        count = numpy.fromfile(prefix + ".idx", numpy.uint64, 1, offset=18)[0]
        lengths = numpy.fromfile(prefix + ".idx", numpy.int32, int(count), offset=34)
        tokens = numpy.fromfile(prefix + ".bin", {4: numpy.int32, 8: numpy.uint16}[int(head[17])])
        return [part.tolist() for part in numpy.split(tokens, numpy.cumsum(lengths)[:-1])]
    data = IndexedDataset(prefix)
    assert list(data.document_indices) == list(range(len(data) + 1))
    return [data[i].tolist() for i in range(len(data))]


def first_difference(ours, theirs, text):
    if ours == theirs:
        return None
    at = next((i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b), min(len(ours), len(theirs)))
    return f"token {at}: {ours[at - 2:at + 6]}, not {theirs[at - 2:at + 6]}, in {text[:80]!r}"


def compare(t, program, folder, name, kind, texts):
    """Trains a tokenizer, writes the texts as a file each and as JSON lines, and compares the tokens of both."""
    tokenizer = trained(t, name, kind, texts)
    file = folder / f"{name}.json"
    tokenizer.save(str(file))
    if name == "crossing":  # every document is one word
        texts = [text[:20_000] for text in texts]
    theirs = [tokenizer.encode(text).ids for text in texts]
    lines = folder / "texts.jsonl"
    lines.write_text("".join(json.dumps({"content": text}, ensure_ascii=index % 2 == 0) + "\n" for index, text in enumerate(texts)), encoding="utf-8")
    size = sum(len(text.encode()) for text in texts) / 1e6
    run = subprocess.run([*program, "tokenize", "--tokenizer", str(file), str(lines), "--key", "content", "-o", str(folder / name)],
                         capture_output=True, text=True)
    assert run.returncode == 0, (name, run.stdout, run.stderr)
    ours = indexed(str(folder / name))
    theirs = [ids for ids in theirs if ids]
    assert len(ours) == len(theirs), (name, len(ours), len(theirs))
    texts = [text for text in texts if tokenizer.encode(text).ids]
    wrong = [difference for o, e, text in zip(ours, theirs, texts) if (difference := first_difference(o, e, text))]
    print(f"{name}: {sum(map(len, theirs)):,} tokens of {size:.1f} MB, {len(wrong)} of {len(theirs)} documents differ; {run.stdout.splitlines()[-2]}")
    for line in wrong[:5]:
        print("   ", line)
    return len(wrong)


def main():
    t = needs_tokenizers()
    program = [str(Path(sys.argv[1]).resolve() / "mpt-run")]
    texts = own_text(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    with tempfile.TemporaryDirectory() as folder:
        wrong = {name: compare(t, program, Path(folder), name, kind, texts) for name, kind in kinds(t).items()}
    assert not any(wrong.values()), wrong


if __name__ == "__main__":
    main()
