# SPDX-License-Identifier: Apache-2.0
"""The page in headless Chromium, from one file and with the network off: typing, wrong input, a dropped file, a click in a
plot, sliders, a link opened in a new tab, widths and the policy.

Usage: page_test.py FOLDER [PICTURES [ANSWER]]. FOLDER has the built page (scripts/page); pictures of widths go to PICTURES, if it is not empty.
ANSWER: the program of answer.cpp, which answers where the page was not built (native.py). Exits with 77, a skip for ctest, where both
or Chromium are missing.
"""

import contextlib
import json
import os
import re
import sys
import tempfile
import urllib.parse

import browser
import native

LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32,
         "num_key_value_heads": 8, "intermediate_size": 8192, "vocab_size": 128256, "tie_word_embeddings": True,
         "max_position_embeddings": 131072, "hidden_act": "silu", "_name_or_path": "<img src=x onerror=alert(1)>"}
SMALL = "#model=llama3-8b&cluster=dgx-h100:1&global_batch=64"
SECTIONS = ["recommendation", "memory", "time", "teach", "timeline", "front", "ranking", "why-not", "proof", "cluster"]
# Names, overflow, identifiers, and contrast of text by WCAG 2.2, 1.4.3. Text of drawings: tests/reports/browser_test.py.
LOOK = r"""(() => {
  const wrong = [];
  if (document.documentElement.scrollWidth > innerWidth + 1) wrong.push('wider than ' + innerWidth);
  for (const e of document.querySelectorAll('button, input, select, svg'))
    if (!(e.textContent.trim() || e.getAttribute('aria-label') || (e.labels && e.labels.length))) wrong.push('no name: ' + e.outerHTML.slice(0, 80));
  const ids = [...document.querySelectorAll('[id]')].map((e) => e.id);
  for (const id of new Set(ids)) if (ids.filter((other) => other === id).length > 1) wrong.push('twice: ' + id);
  for (const e of document.querySelectorAll('[aria-describedby]'))
    for (const id of e.getAttribute('aria-describedby').split(' ')) if (!document.getElementById(id)) wrong.push('describes nothing: ' + id);
  const parts = (colour) => colour.match(/[\d.]+/g).map(Number);
  const light = (colour) => parts(colour).slice(0, 3).map((v) => v / 255).map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (e) => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor, p = parts(c); if (p.length < 4 || p[3] > 0) return c; } return 'rgb(255, 255, 255)'; };
  let seen = 0;
  for (const e of document.querySelectorAll('body *:not(svg *):not(script):not(option)')) {
    if (![...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim()) || !e.getClientRects().length) continue;
    const style = getComputedStyle(e), size = parseFloat(style.fontSize), large = size >= 24 || size >= 18.7 && style.fontWeight >= 700;
    const two = [light(style.color), light(ground(e))].sort((a, b) => a - b), ratio = (two[1] + 0.05) / (two[0] + 0.05);
    ++seen;
    if (ratio < (large ? 3 : 4.5)) wrong.push('contrast ' + ratio.toFixed(2) + ': ' + e.outerHTML.slice(0, 80));
  }
  if (seen < 60) wrong.push('only ' + seen + ' texts seen');
  return wrong;
})()"""


def answered(page, act):
    """Waits for the answer to what `act` does."""
    before = page.run("Number(document.documentElement.dataset.answers || 0)")
    act()
    page.wait(f"Number(document.documentElement.dataset.answers || 0) > {before} && !document.querySelector('#out.old')")


def expect(right, what):
    if not right:
        sys.exit(f"not so: {what}")
    print(f"{what}: so")


def drop(page, name, text, target="document.body"):
    page.run(f"""(() => {{
      const transfer = new DataTransfer();
      transfer.items.add(new File([{json.dumps(text)}], {json.dumps(name)}));
      {target}.dispatchEvent(new DragEvent('drop', {{dataTransfer: transfer, bubbles: true, cancelable: true}}));
    }})()""")


def check_answer(page):
    page.wait("document.querySelector('#step')")
    missing = [s for s in SECTIONS if not page.run(f"Boolean(document.getElementById('{s}'))")]
    expect(not missing, f"every section is drawn{missing or ''}")
    step = page.run("document.querySelector('#step').textContent")
    expect("per step" in step and "in 8 of 10 cases" in step and "fits: " in step, "step, range and likelihood come first")
    expect(page.run("document.querySelectorAll('#timeline-drawing rect').length") > 50, "the timeline is drawn")
    expect(page.run("scrollY") == 0 and page.run("document.querySelector('#step').getBoundingClientRect().bottom < innerHeight"), "it needs no scrolling")


def check_typing(page):
    answered(page, lambda: page.type("global_batch", "128"))
    expect("128 sequences" in page.run("document.querySelector('#recommendation').textContent"), "typing asks")
    expect("global_batch=128" in page.run("location.hash"), "the address holds the question")
    page.type("model", "llama3-8x")
    page.wait("document.getElementById('q-model-error').textContent.includes('llama3-8b')")  # what was typed before it is wrong, too
    expect(page.run("document.getElementById('q-model').getAttribute('aria-invalid')") == "true", "an unknown model is told at its field")
    expect(page.run("document.getElementById('out').classList.contains('old')"), "the answer of before stays, dimmed")
    page.type("global_batch", "12x")
    page.type("model", "llama3-8b")
    page.wait("document.getElementById('q-global_batch').getAttribute('aria-invalid') === 'true'")
    expect(page.run("document.getElementById('q-global_batch-error').textContent").strip(), "a wrong number is told at its field")
    answered(page, lambda: page.type("global_batch", "64"))
    expect(not page.run("document.querySelector('[aria-invalid]')"), "a right number clears it")
    page.run("document.getElementById('q-tp').closest('details').open = true")
    page.type("tp", "3")
    page.wait("document.getElementById('q-tp-error').textContent.includes('tp 3')")
    expect(page.run("document.getElementById('q-tp').getAttribute('aria-invalid')") == "true", "a bound that divides nothing is told at its field")
    page.run("document.getElementById('q-tp').value = ''")
    # A question that is typed over: its answer never shows.
    page.type("model", "llama3-70b")
    answered(page, lambda: page.type("model", "qwen3-8b"))
    expect("qwen3-8b" in page.run("document.title"), "an older search is cancelled")
    answered(page, lambda: page.type("model", "llama3-8b"))


def check_units(page):
    page.wait("document.getElementById('cluster-hint').textContent === '8 x h100-sxm-80gb.'")
    expect(True, "the cluster is told in GPUs")
    answered(page, lambda: page.type("seq", "8k"))
    expect("8192 tokens" in page.run("document.querySelector('#recommendation').textContent"), "8k is a length")
    expect(page.run("document.getElementById('tokens-hint').textContent") == "524K tokens per step", "and counted")
    page.type("seq", "8x")
    page.wait("document.getElementById('q-seq-error').textContent.includes('8k')")
    page.run("document.getElementById('q-seq').value = ''")
    page.type("cluster", "rtx4090")
    answered(page, lambda: page.type("nodes", "8"))
    expect("rtx4090:1x8" in page.run("document.getElementById('cluster-hint').textContent"), "eight machines of one GPU are told apart from one of eight")
    page.run("document.getElementById('q-nodes').value = '1'")
    answered(page, lambda: page.type("cluster", "dgx-h100"))


def check_limit(page):
    answered(page, lambda: page.run("location.hash = '#model=llama3-70b&cluster=dgx-h100:8&global_batch=512'"))
    heads = page.run("[...document.querySelectorAll('#ranking th')].map((e) => e.textContent)")
    beyond = page.run("[...document.querySelectorAll('#ranking tbody tr')].findIndex((row) => row.children[5].textContent === '49%') + 1")
    expect(heads[5] == "fits" and beyond > 1, "the ranking says how likely each layout fits")
    said = page.run("document.querySelector('#ranking p.note:not(.more)').textContent")
    expect(re.match(rf"Beyond the limit of [\d.]+ GiB: ([\d, ]+, )?{beyond}[.,]", said), f"and which is beyond the limit: {said}")
    expect(page.run("document.querySelectorAll('#front-limit').length") == 1, "the plot has the limit")
    answered(page, lambda: page.run("location.hash = 'model=llama3-8b&cluster=dgx-h100:1&global_batch=64'"))


def check_files(page):
    answered(page, lambda: drop(page, "config.json", json.dumps(LLAMA)))
    expect("16 layers, hidden 2048" in page.run("document.querySelector('#recommendation').textContent"), "a dropped config.json is planned")
    expect(page.run("document.images.length") == 0, "its name stays text")
    drop(page, "notes.txt", "not json")
    expect("not a JSON object" in page.run("new Promise((r) => setTimeout(() => r(document.getElementById('q-model-error').textContent), 100))"), "another file is refused")
    answered(page, lambda: page.type("model", "llama3-8b"))


    page.run(f"""(() => {{
      const transfer = new DataTransfer();
      transfer.setData('text', {json.dumps(json.dumps(LLAMA))});
      document.getElementById('q-model').dispatchEvent(new ClipboardEvent('paste', {{clipboardData: transfer, bubbles: true, cancelable: true}}));
    }})()""")
    page.wait("document.querySelector('#recommendation').textContent.includes('16 layers, hidden 2048')")
    expect(page.run("document.getElementById('q-model').value") == "file: pasted", "a pasted config.json is planned")
    answered(page, lambda: page.type("model", "llama3-8b"))


def check_copies(page):
    page.run("""(() => {
      window.saved = [];
      const url = URL.createObjectURL;
      URL.createObjectURL = (blob) => { blob.text().then((text) => saved.push(text)); return url(blob); };
    })()""")

    def after(act):
        page.run("saved.length = 0")
        page.run(act)
        page.wait("saved.length")
        return page.run("saved[0]")
    click = "[...document.querySelectorAll('.actions button')].find((b) => b.textContent === '%s').click()"
    plan = json.loads(after(click % "plan.json"))
    expect(plan["model"]["name"] == "llama3-8b" and plan["input_digests"], "plan.json is downloaded")
    expect(after(click % "Report").startswith("<!DOCTYPE html>"), "and the report, as one file")
    export = "(() => { const to = document.getElementById('export'); to.value = '%s'; to.dispatchEvent(new Event('change')); })()"
    expect("--tensor-model-parallel-size" in after(export % "megatron-core"), "and what a framework reads")
    page.run(click % "Copy command")
    page.wait("document.getElementById('toast').textContent.includes('mpt-plan --model llama3-8b --cluster dgx-h100:1 --global-batch 64')")
    expect(True, "the command is copied")


def check_keys(page):
    page.run("document.querySelector('#front circle').focus()")
    answered(page, lambda: page.press("Enter"))
    expect(not page.run("document.getElementById('compared').hidden"), "a point is chosen by the keyboard")
    page.run("(document.getElementById('timeline-drawing').focus(), document.getElementById('timeline-whole').click())")
    whole = float(page.run("document.getElementById('timeline-drawing').dataset.to"))
    page.press("+", 187)
    expect(float(page.run("document.getElementById('timeline-drawing').dataset.to")) < whole, "the timeline zooms by the keyboard")


def check_print(page):
    page.call("Emulation.setEmulatedMedia", media="print")
    shown = page.run("['ask', 'recommendation'].map((id) => document.getElementById(id).getClientRects().length > 0)")
    page.call("Emulation.setEmulatedMedia", media="")
    expect(shown == [False, True], "the answer is printed without fields")


def check_policy(page):
    page.run("(() => { const s = document.createElement('script'); s.textContent = 'window.foreign = true'; document.head.appendChild(s); })()")
    expect(not page.run("window.foreign"), "another script does not run")


def check_clicks(page):
    answered(page, lambda: page.run("document.querySelectorAll('#front circle')[1].dispatchEvent(new MouseEvent('click'))"))
    expect(not page.run("document.getElementById('compared').hidden"), "a point of the plot is compared")
    expect("difference" in page.run("document.getElementById('compared').textContent"), "by its causes")
    before = page.run("document.getElementById('timeline').textContent")

    def drag():
        page.run("(() => { const s = document.getElementById('if-batch'); s.value = String(Number(s.value) - 2); s.dispatchEvent(new Event('input')); })()")
    answered(page, drag)
    expect("per step" in page.run("document.getElementById('what-if').textContent"), "a slider asks the planner")
    expect(page.run("document.getElementById('timeline').textContent") != before, "and the timeline moves")
    answered(page, lambda: page.run("(document.getElementById('why-not-layout').value = 'tp=4', document.querySelector('#why-not form').requestSubmit())"))
    expect("tp4" in page.run("document.getElementById('why-not-said').textContent"), "why not is answered")


def check_nothing_fits(page):
    page.type("model", "llama3-405b")
    page.wait("!document.getElementById('problem').hidden")
    expect("GiB" in page.run("document.getElementById('problem').textContent"), "where nothing fits, what is missing is told")
    page.wait("document.querySelector('#nearest #doctor')")
    said = page.run("document.querySelector('#nearest svg').getAttribute('aria-label')")
    expect("gradients" in said and "logits and loss" in said, "and what fills a GPU with the nearest layout")
    answered(page, lambda: page.type("model", "llama3-8b"))
    page.wait("document.querySelector('#of-plan #doctor')")
    expect(not page.run("document.querySelector('#nearest').children.length"), "it goes with the next answer")


def check_doctor(page):
    """The bar has the parts that the planner counts, and each switch its saving, its time and its option."""
    answered(page, lambda: page.run("location.hash = 'model=llama3-8b&cluster=dgx-h100:1&global_batch=64&seq=16384&framework=torchtitan'"))
    page.wait("document.querySelector('#of-plan #doctor')")
    said = page.run("document.querySelector('#doctor svg').getAttribute('aria-label')")
    parts = page.run("[...document.querySelectorAll('#doctor .legend span')].map((e) => e.textContent)")
    expect(all(part in said for part in parts[:-1]) and "80.0 GiB (dashed)" in parts[-1], f"the bar is told to those who do not see it: {said}")
    widths = page.run("[...document.querySelectorAll('#doctor rect')].map((e) => Number(e.getAttribute('width')))")
    expect(len(widths) == len(parts) - 1 and all(width > 0 for width in widths), "each part has its length")
    rows = page.run("[...document.querySelectorAll('#doctor tbody tr')].map((row) => [...row.children].map((cell) => cell.textContent))")
    full = next((row for row in rows if row[0].startswith("--recompute full (")), ["", "", "", ""])
    expect(full[1].endswith("GiB") and full[2].endswith(" s") and full[3].endswith("%"), f"a switch has its saving, its time and its likelihood: {full}")
    page.run("document.querySelector('#doctor rect').dispatchEvent(new PointerEvent('pointermove', {clientX: 9, clientY: 9}))")
    expect(page.run("document.getElementById('tip').textContent") == parts[0], "a part tells its figure")
    answered(page, lambda: page.run("location.hash = 'model=llama3-8b&cluster=dgx-h100:1&global_batch=64'"))


def check_risk(chromium, address):
    eight = urllib.parse.quote(json.dumps({"like": "rtx4090", "nodes": 1, "gpus_per_node": 8}))
    page = chromium.open(f"{address}#model=llama3-8b&cluster={eight}&global_batch=64&framework=torchtitan")
    page.wait("document.querySelector('.choices')")
    said = page.run("document.querySelector('.choices').textContent")
    expect("TRY FIRST" in said and "FALL BACK" in said, "what to try first and what to fall back to")


def check_widths(chromium, address, pictures):
    for width, height in ((390, 844), (1024, 768), (1280, 900), (1440, 900), (1920, 1080)):
        for dark in (False, True) if width in (390, 1280, 1440) else (False,):
            page = chromium.open(address, width, height, dark)
            page.wait("document.querySelector('#of-plan #doctor')")
            wrong = page.run(LOOK)
            wrong += page.run("[...document.querySelectorAll('#doctor .scroll')].filter((e) => e.scrollWidth > e.clientWidth + 2).map(() => 'a table of switches is wider')")
            wrong += page.run("[...document.querySelectorAll('#doctor *')].filter((e) => parseFloat(getComputedStyle(e).fontSize) < 11).map((e) => 'small: ' + e.textContent)")
            expect(not wrong, f"at {width}{', dark' if dark else ''}: names, identifiers, width and contrast are right {wrong or ''}")
            if pictures:
                name = os.path.join(pictures, f"page-{width}{'-dark' if dark else ''}")
                page.picture(name + ".png")
                page.resize(width, page.run("Math.min(9000, document.documentElement.scrollHeight)"))
                page.picture(name + "-whole.png")


def main():
    folder, pictures, program = (sys.argv[1:] + ["", ""])[:3]
    file = os.path.join(os.path.abspath(folder), "mpt.html")
    built = os.path.exists(file)
    if browser.PROGRAM is None or not (built or os.path.exists(program)):
        print(f"SKIPPED: {'chromium is not installed' if browser.PROGRAM is None else 'scripts/page has not been run'}")
        sys.exit(77)
    if pictures:
        os.makedirs(pictures, exist_ok=True)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch, contextlib.ExitStack() as open_until, browser.Browser(scratch) as chromium:
        address = "file://" + file if built else open_until.enter_context(native.NativePage(program, scratch)).address
        page = chromium.open(address + SMALL)
        page.call("Network.enable")
        page.call("Network.emulateNetworkConditions", offline=built, latency=0, downloadThroughput=-1 if not built else 0, uploadThroughput=-1 if not built else 0)
        check_answer(page)
        check_typing(page)
        check_units(page)
        check_limit(page)
        check_files(page)
        check_clicks(page)
        check_copies(page)
        check_keys(page)
        check_print(page)
        check_doctor(page)
        check_nothing_fits(page)
        link = page.run("location.href")
        other = chromium.open(link)
        other.wait("document.querySelector('#step')")
        expect(other.run("document.querySelector('#step').textContent") == page.run("document.querySelector('#step').textContent"), "a link opened in a new tab is the plan")
        check_risk(chromium, address)
        check_widths(chromium, address + SMALL, pictures)
        expect(not chromium.errors, f"no error in the console {chromium.errors or ''}")
        check_policy(page)


main()
