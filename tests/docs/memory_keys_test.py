# SPDX-License-Identifier: Apache-2.0
"""docs/memory_keys.md lists each key of frameworks/transformers/tuner_keys.json that changes memory and of which no value has a price.

Usage: memory_keys_test.py ROOT [--write]
"""

import json
import pathlib
import sys
import textwrap

ROOT = pathlib.Path(sys.argv[1])
PAGE = ROOT / "docs/memory_keys.md"
HEAD = """# Keys that change memory and have no price

An import names such a key in a note, where its value is another than the default, and `mpt-plan doctor` has no row for it. `kept`: where
all layers recompute, the key has no effect. The lists are those of `frameworks/transformers/tuner_keys.json` (`changes`), without the keys
that have a priced value (`sets`). `python3 tests/docs/memory_keys_test.py . --write` writes this page.
"""


def lists():
    for tool in json.loads((ROOT / "frameworks/transformers/tuner_keys.json").read_text(encoding="utf-8"))["tools"]:
        changes = tool.get("changes", {})
        for heading in ("memory", "kept"):
            keys = sorted(set(changes.get(heading, {})) - set(tool.get("sets", {})))
            if keys:
                yield f'{tool.get("package", tool["tool"])}, {heading}', keys


def page():
    text = HEAD
    for title, keys in lists():
        text += f"\n## {title}\n\n" + textwrap.fill(", ".join(f"`{key}`" for key in keys), 140, break_long_words=False, break_on_hyphens=False) + "\n"
    return text


if sys.argv[2:] == ["--write"]:
    PAGE.write_text(page(), encoding="utf-8")
elif PAGE.read_text(encoding="utf-8") != page():
    sys.exit(f"{PAGE} is not what the tables say: python3 tests/docs/memory_keys_test.py . --write")
names = [key for _, keys in lists() for key in keys]
for known in ("tiled_mlp_num_shards", "use_unsloth_gc", "moe_expert_capacity_factor", "use_cache"):
    if known not in names:
        sys.exit(f"{known} changes memory, and is not listed")
print(f"{len(names)} keys")
