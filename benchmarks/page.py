#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sizes and times of the page in headless Chromium, for reports/results/page.md: from the last key to the drawn answer, as the
median of changes of the batch.

Usage: page.py FOLDER [CHANGES]: FOLDER has the page that scripts/page built. Prints the page of results.
"""

import gzip
import os
import statistics
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tests/page"))
import browser  # noqa: E402

# What is asked, and the most milliseconds that it may take.
QUESTIONS = [("llama3-8b", "dgx-h100:1", 64, 8, 150), ("llama3-70b", "dgx-h100:8", 512, 64, 1000), ("llama3-70b", "dgx-h100:128", 2048, 128, 500)]
CHANGE = """(async () => {
  const root = document.documentElement, field = document.getElementById('q-global_batch');
  const answered = new Promise((done) => new MutationObserver(done).observe(root, {attributeFilter: ['data-answers']}));
  const begun = performance.now();
  field.value = '%d';
  field.dispatchEvent(new Event('input', {bubbles: true}));
  await answered;
  return [performance.now() - begun, document.getElementById('problem').hidden && !document.querySelector('[aria-invalid]')];
})()"""


def main():
    folder, changes = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 50
    file = os.path.join(os.path.abspath(folder), "mpt.html")
    parts = [os.path.join(folder, name) for name in ("index.html", "planner.wasm")]
    packed = sum(len(gzip.compress(open(part, "rb").read(), 9)) for part in parts)
    print("# The page in a browser\n\nWritten by `benchmarks/page.py SITE`. Times are from the last key to the drawn answer, and the median of "
          f"{changes} changes\nof the batch, in headless Chromium from the single file.\n")
    print(f"- The folder has {packed / 1e6:.2f} MB by gzip, the single file {os.path.getsize(file) / 1e6:.2f} MB, the module {os.path.getsize(parts[1]) / 1e6:.2f} MB.")
    with tempfile.TemporaryDirectory() as scratch, browser.Browser(scratch) as chromium:
        page = chromium.open("file://" + file + "#model=llama3-8b&cluster=dgx-h100:1&global_batch=64")
        page.wait("document.querySelector('#step')")
        paint, loaded = page.run("[performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0, performance.now()]")
        print(f"- First paint after {paint:.0f} ms, the first answer by {loaded:.0f} ms.\n\n| question | median | slowest tenth | asked for |\n| --- | ---: | ---: | ---: |")
        for model, cluster, batch, step, most in QUESTIONS:
            page.run(f"location.hash = '#model={model}&cluster={cluster}&global_batch={batch}'")
            page.wait(f"document.querySelector('#recommendation').textContent.includes('{batch} sequences')")
            times = []
            for n in range(changes):
                milliseconds, answered = page.run(CHANGE % (batch + step * (1 + n % 7)))
                if not answered:
                    sys.exit(f"no plan for {model} on {cluster}")
                times.append(milliseconds)
            tenth = sorted(times)[int(len(times) * 0.9)]
            print(f"| {model} on {cluster}, batch {batch} and more | {statistics.median(times):.0f} ms | {tenth:.0f} ms | {most} ms |")


main()
