#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""mpt-run tokenize against the package `tokenizers`, for every kind of character of Unicode and for canonical composition.

Splits at each general category, and at white space, are compared for every character that the package knows. A tokenizer whose merges
join an x with any byte beside it shows where text is split. NFC is compared behind, between and before combining marks.
Usage: characters_reference.py build/release/bin"""

import json
import subprocess
import sys
import tempfile
import unicodedata
from pathlib import Path

from tokenizer_reference import indexed, needs_tokenizers

KINDS = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co".split()
PATTERNS = {**{kind: rf"\p{{{kind}}}" for kind in KINDS}, "white space": r"\s", "letters": r"\p{L}+", "no blank, letter or digit": r"[^\s\p{L}\p{N}]"}
BLOCKS = [range(start, start + 256) for start in (*range(0, 0x33500, 256), *range(0xe0000, 0xe1000, 256)) if not 0xd800 <= start < 0xe000]
# Without the insides of Han, Hangul and private use, which no version changes.
CHARACTERS = [code for block in BLOCKS if {unicodedata.category(chr(code)) for code in block} not in ({"Lo"}, {"Co"}) for code in block]
AROUND = ("q\u0316{}\u0316", "q\u0301{}", "q{}\u0334", "{}\u0300", "q\u0345{}\u3099", "\u1161{}\u11a8", "\uac00{}", "a{}", "\U00011935{}")


def letters_of_bytes(t):
    """GPT-2's letters, by byte."""
    printable = [*range(0x21, 0x7f), *range(0xa1, 0xad), *range(0xae, 0x100)]
    rest = [byte for byte in range(256) if byte not in printable]
    return {**{byte: chr(byte) for byte in printable}, **{byte: chr(0x100 + i) for i, byte in enumerate(rest)}}


def joining(t, pre_tokenizer, normalizer=None):
    """A tokenizer with merges of x and any byte that is not ASCII, in both orders."""
    letters = letters_of_bytes(t)
    merges = [pair for byte in range(0x80, 0x100) for pair in (("x", letters[byte]), (letters[byte], "x"))]
    vocabulary = {token: i for i, token in enumerate([*letters.values(), *(a + b for a, b in merges)])}
    tokenizer = t.Tokenizer(t.models.BPE(vocab=vocabulary, merges=merges))
    bytes_only = t.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = t.pre_tokenizers.Sequence([pre_tokenizer, bytes_only]) if pre_tokenizer else bytes_only
    if normalizer:
        tokenizer.normalizer = normalizer
    return tokenizer


def differences(program, folder, tokenizer, texts):
    """Numbers of the texts whose tokens differ."""
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    subprocess.run([*program, "tokenize", "--tokenizer", str(folder / "tokenizer.json"), str(folder / "texts.jsonl"), "-o", str(folder / "out")],
                   check=True, capture_output=True)
    ours = indexed(str(folder / "out"))
    theirs = [encoding.ids for encoding in tokenizer.encode_batch(texts)]
    assert len(ours) == len(theirs), (len(ours), len(theirs))
    return [i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b]


def check(program, folder, name, tokenizer, form):
    """The form with each character in it: in hundreds first, and one by one where these differ."""
    groups = [CHARACTERS[i:i + 100] for i in range(0, len(CHARACTERS), 100)]
    wrong = differences(program, folder, tokenizer, ["".join(f"z {form.format(chr(code))} z" for code in group) for group in groups])
    single = [code for i in wrong for code in groups[i]]
    bad = [single[i] for i in differences(program, folder, tokenizer, [form.format(chr(code)) for code in single])] if single else []
    print(f"{name}: {len(CHARACTERS):,} characters, {len(bad)} differ {' '.join(f'{code:x}' for code in bad[:20])}", flush=True)
    return len(bad) + (len(wrong) if not bad else 0)


def main():
    t = needs_tokenizers()
    program = [str(Path(sys.argv[1]).resolve() / "mpt-run")]
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, pattern in PATTERNS.items():
            split = t.pre_tokenizers.Split(t.Regex(pattern), "isolated")
            wrong += check(program, Path(folder), name, joining(t, split), "x{}x")
        wrong += check(program, Path(folder), "Digits", joining(t, t.pre_tokenizers.Digits(individual_digits=True)), "x{}x")
        for form in AROUND:
            wrong += check(program, Path(folder), f"NFC of {ascii(form)}", joining(t, None, t.normalizers.NFC()), form)
    assert wrong == 0


if __name__ == "__main__":
    main()
