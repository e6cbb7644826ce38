// The page: a question on the left, the planner's answer on the right while one types. The address holds the question.
// Everything that is drawn of a plan comes from reports/html/draw.js; every figure comes from the planner. Text of files
// and of the planner goes in as text, never as markup.
'use strict';
(function () {
const {element, seconds, signed, table, section} = mptDraw;
const $ = (id) => document.getElementById(id);
const field = (name) => $('q-' + name);  // of the question

// ---- the planner in its worker
// A worker answers one question at a time. A question that came too late is not waited for: its worker ends, and one that
// stands ready takes over, which has read the planner's tables for a question of its own.
const kRehearsal = {do: 'plan', request: {model: 'qwen3-0.6b', cluster: 'dgx-h100:1', global_batch: 8, bounds: {tp: [1], pp: [1], cp: [1]}}};
const planner = {module: null, loaded: null, idle: null, spare: null, running: null};
function startWorker(rehearses) {
  const worker = {port: new Worker(planner.script)};
  worker.ready = new Promise((done) => {
    worker.port.onmessage = (event) => {
      if (event.data.ready) done(worker);
      else if (event.data.progress) { if (worker.progress) worker.progress(event.data.progress); }
      else worker.answered(event.data.answer);
    };
  });
  worker.port.postMessage({module: planner.module});
  if (rehearses) worker.ready = worker.ready.then(() => post(worker, kRehearsal)).then(() => worker);
  return worker;
}
// Bytes that scripts/page wrote as their number and five digits of base 85 for each four.
function bytesOf(text) {
  const digits = new Map([...'0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;,=>?@^_`{|}~'].map((c, n) => [c.charCodeAt(0), n]));
  const begin = text.indexOf(':') + 1, view = new DataView(new ArrayBuffer((text.length - begin) / 5 * 4));
  for (let from = begin, to = 0; from < text.length; from += 5, to += 4) {
    let word = 0;
    for (let k = 0; k < 5; ++k) word = word * 85 + digits.get(text.charCodeAt(from + k));
    view.setUint32(to, word);
  }
  return new Uint8Array(view.buffer, 0, Number(text.slice(0, begin - 1)));
}
async function compiled() {
  const inline = $('module').textContent.trim();
  if (!inline) return WebAssembly.compileStreaming(fetch('planner.wasm'));
  $('module').textContent = '';
  const stream = new Blob([bytesOf(inline)]).stream().pipeThrough(new DecompressionStream('gzip'));
  return WebAssembly.compile(await new Response(stream).arrayBuffer());
}
function post(worker, question, progress) {
  return new Promise((done) => {
    worker.progress = progress;
    worker.answered = done;
    worker.port.postMessage({question: question});
  });
}
async function load() {
  planner.script = URL.createObjectURL(new Blob([$('worker').textContent], {type: 'text/javascript'}));
  planner.module = await compiled();
  planner.idle = startWorker();
  await planner.idle.ready;
  const names = await post(planner.idle, {do: 'names'}), version = await post(planner.idle, {do: 'version'});
  takeNames(names.answer, version.answer);
  setTimeout(() => { planner.spare = planner.spare || startWorker(true); }, 2000);  // after the first answer
}
// Ends what runs now: its promise is never kept.
function cancel() {
  const worker = planner.running;
  if (!worker) return;
  worker.port.terminate();
  planner.running = null;
  planner.idle = planner.spare || startWorker();
  planner.spare = startWorker(true);
  worker.over();
}
// Waits for what runs now, or ends it if this question is urgent.
async function ask(question, urgent, progress) {
  await planner.loaded;
  if (urgent) cancel();
  while (planner.running) await planner.running.end;
  const worker = planner.running = planner.idle;
  worker.end = new Promise((over) => { worker.over = over; });
  await worker.ready;
  const answer = await post(worker, question, progress);
  if (planner.running === worker) planner.running = null;
  worker.over();
  return answer;
}

// ---- the question: fields, request and address
// How a text of a field becomes a value of the request; what is not understood goes to the planner as it is, which says
// what it expects.
const whole = (text) => /^\d+$/.test(text.replace(/[, ]/g, '')) ? Number(text.replace(/[, ]/g, '')) : text;
const several = (text) => text.split(',').map((part) => whole(part.trim()));
const kLimit = 10;  // seconds of search until it is asked to go on
const boundFields = [['tp', 'Tensor', several], ['pp', 'Pipeline', several], ['cp', 'Context', several], ['ep', 'Expert', several], ['dp', 'Data', several],
  ['zero', 'ZeRO / FSDP', several], ['micro_batch', 'Micro-batch', several], ['recompute', 'Checkpointing', (text) => text.split(',').map((part) => part.trim())]];
const plain = {global_batch: whole, seq: whole, framework: String, precision: String, memory: String, memory_margin: String, optimizer: String};
const files = {model: null, cluster: null};  // {name, value} of what was dropped or pasted
let extra = {};  // of an address: what no field holds

for (const [name, title] of boundFields) {
  const cell = element('div', $('bounds'), null, {class: 'field'});
  element('label', cell, title, {for: 'q-' + name});
  element('input', cell, null, {id: 'q-' + name, name: name, placeholder: 'any', autocomplete: 'off', spellcheck: 'false'});
}
for (const input of $('form').querySelectorAll('input, select')) {
  element('p', input.closest('.field'), null, {class: 'error', id: input.id + '-error'});
  if (!input.hasAttribute('aria-describedby')) input.setAttribute('aria-describedby', input.id + '-error');
}
const value = (name) => field(name).value.trim();

function requestOf() {
  const request = Object.assign({}, extra);
  request.model = files.model ? files.model.value : value('model');
  const cluster = value('cluster'), nodes = value('nodes');
  request.cluster = files.cluster ? files.cluster.value : /[:+@]/.test(cluster) || !nodes ? cluster : cluster + ':' + nodes;
  for (const key in plain) if (value(key)) request[key] = plain[key](value(key));
  if (value('train')) request.lora = whole(value('lora') || '16');
  if (value('train') === 'qlora') request.frozen_weights = 'nf4';
  const bounds = Object.assign({}, extra.bounds);
  for (const [name, , read] of boundFields) if (value(name)) bounds[name] = read(value(name));
  if (Object.keys(bounds).length) request.bounds = bounds;
  return request;
}
function fill(request) {
  const rest = Object.assign({}, request);
  const take = (key) => { const one = rest[key]; delete rest[key]; return one === undefined ? '' : one; };
  for (const key of ['model', 'cluster']) {
    const one = take(key);
    files[key] = typeof one === 'object' ? {name: one.name || one._name_or_path || one.like || 'file', value: one} : null;
    field(key).value = files[key] ? 'file: ' + files[key].name : one;
  }
  const counted = /^([^:+@]+):(\d+)$/.exec(value('cluster'));
  field('nodes').value = counted ? counted[2] : '';
  if (counted) field('cluster').value = counted[1];
  for (const key in plain) {
    const one = String(take(key));
    // A choice that the page does not list is kept: the planner judges it.
    if (one && field(key).tagName === 'SELECT' && ![...field(key).options].some((o) => o.value === one)) element('option', field(key), one, {value: one});
    field(key).value = one;
  }
  field('lora').value = take('lora');
  const stored = rest.frozen_weights;
  if (stored === 'nf4') delete rest.frozen_weights;
  field('train').value = value('lora') ? (stored === 'nf4' ? 'qlora' : 'lora') : '';
  const bounds = Object.assign({}, take('bounds'));
  for (const [name] of boundFields) { field(name).value = (bounds[name] || []).join(','); delete bounds[name]; }
  if (Object.keys(bounds).length) rest.bounds = bounds;
  extra = rest;
  for (const folded of $('form').querySelectorAll('details')) folded.open = folded.open || [...folded.querySelectorAll('input, select')].some((input) => input.value);
}
function addressOf(request) {
  const all = new URLSearchParams();
  for (const key in request) all.set(key, typeof request[key] === 'object' ? JSON.stringify(request[key]) : String(request[key]));
  return '#' + all.toString().replace(/%3A/g, ':').replace(/%2C/g, ',');
}
function requestAt(address) {
  const request = {};
  for (const [key, text] of new URLSearchParams(address.slice(1))) {
    let one = text;
    if (/^[[{]/.test(text)) { try { one = JSON.parse(text); } catch (error) { one = text; } }
    else if (key !== 'model' && key !== 'cluster' && /^\d+(\.\d+)?$/.test(text)) one = Number(text);
    else if (text === 'true' || text === 'false') one = text === 'true';
    request[key] = one;
  }
  return request;
}

// ---- asking while one types
const now = {request: null, plan: null, data: null};
let timer = null, asked = 0;
function changed() {
  clearTimeout(timer);
  timer = setTimeout(answer, 10);
  const lora = Boolean(value('train'));
  $('rank-field').hidden = !lora;
  const length = /^\d+[kK]$/.test(value('seq')) ? parseInt(value('seq'), 10) * 1024 : Number(whole(value('seq')) || 4096);
  const tokens = Number(whole(value('global_batch'))) * length;
  showCluster();
  $('tokens-hint').textContent = tokens > 0 ? (tokens < 1e6 ? (tokens / 1e3).toPrecision(3) + 'K' : (tokens / 1e6).toPrecision(3) + 'M') + ' tokens per step' : '';
  $('folded').textContent = [value('model'), 'on', value('nodes') ? value('nodes') + ' x' : '', value('cluster') + ',', 'batch', value('global_batch')].join(' ');
}
// What cluster and nodes mean, in GPUs.
function showCluster() {
  const known = (now.names ? now.names.clusters : []).find((one) => one.name === value('cluster')), nodes = whole(value('nodes') || '1');
  const gpus = known ? nodes * known.gpus_per_node : NaN;
  let text = 'A name of the catalog. Or drop a cluster file.';
  if (gpus === gpus) text = gpus + ' x ' + known.gpu + (nodes > 1 ? ', ' + known.gpus_per_node + ' in each machine' : '') + '.';
  if (nodes > 1 && known && known.gpus_per_node === 1) text = nodes + ' machines with one ' + known.gpu + ' each. For ' + nodes + ' in one machine: ' + known.name + ':1x' + nodes;
  $('cluster-hint').textContent = text;
}
function tell(text, button, act) {
  $('state').textContent = text;
  if (button) element('button', $('state'), button, {type: 'button'}).onclick = act;
}
function clearErrors() {
  $('problem').hidden = true;
  $('nearest').textContent = '';
  for (const input of $('form').querySelectorAll('[aria-invalid]')) input.removeAttribute('aria-invalid');
  for (const text of document.querySelectorAll('.error')) text.textContent = '';
}
// The field that a place of an error means: "--model", "request at /bounds/tp/0" or "request/model at /hidden_size".
function fieldOf(place) {
  const path = place.startsWith('--') ? [place.slice(2).split(' ')[0].replace(/-/g, '_')] : place.startsWith('request') ? place.slice(7).replace(' at ', '').split('/').filter(Boolean) : [];
  const name = path[0] === 'bounds' ? path[1] : path[0];
  return name ? field(name) : null;
}
function showError(error, request) {
  const rest = [];
  const problems = error.problems.length ? error.problems : [{place: '', finding: error.text, expectation: '', remedy: ''}];
  for (const problem of problems) {
    const text = problem.finding + (problem.expectation ? '; expected ' + problem.expectation : '') + (problem.remedy ? '. ' + problem.remedy : '');
    const input = fieldOf(problem.place);
    if (input) {
      input.setAttribute('aria-invalid', 'true');
      $(input.id + '-error').textContent = text;
      if (input.closest('details')) input.closest('details').open = true;
    } else {
      rest.push(problem);
    }
  }
  $('problem').textContent = '';
  $('problem').hidden = rest.length === 0;
  for (const problem of rest) {
    element('p', $('problem'), (problem.place ? problem.place + ': ' : '') + problem.finding);
    if (problem.expectation) element('p', $('problem'), 'Expected: ' + problem.expectation.split('\n')[0]);  // below: a bar of letters
    for (const remedy of problem.remedy.split('\n')) if (remedy.trim()) element('p', $('problem'), remedy.trim());
  }
  if (error.nearest) drawDoctor('nearest', request, error.nearest);
  tell(now.plan ? 'The answer below is to the last valid question.' : '');
  $('out').classList.toggle('old', Boolean(now.plan));
}
async function answer(limit) {
  const request = requestOf(), mine = ++asked;
  if (!request.model || !request.cluster || !request.global_batch) {
    tell(planner.module ? 'Model, cluster and batch are enough for an answer.' : 'Loading the planner. The fields can be filled in meanwhile.');
    return;
  }
  history.replaceState(null, '', addressOf(request));
  const begun = performance.now();
  now.searching = true;
  const late = setTimeout(() => { if (mine === asked) { tell('Searching \u2026'); $('out').classList.add('old'); } }, 150);
  const limited = Object.assign({time_limit: limit || kLimit}, request);
  const found = await ask({do: 'plan', request: limited, draw: true}, true, (p) => {
    if (mine === asked) tell('Searching \u2026 ' + p.layouts.toLocaleString('en') + ' layouts in ' + p.seconds.toFixed(1) + ' s' + (p.best_s ? '; best so far ' + seconds(p.best_s * 1e6) : ''));
  });
  if (mine !== asked) return;
  clearTimeout(late);
  clearErrors();
  if (found.error) { showError(found.error, request); return settle(begun); }
  $('out').classList.remove('old');
  Object.assign(now, {request: request, plan: found.answer.plan, text: found.answer.text, data: found.answer.drawing, doctor: null});
  const search = now.plan.search;
  if (search.optimal) tell('All ' + search.layouts.toLocaleString('en') + ' layouts searched in ' + search.seconds.toPrecision(2) + ' s.');
  else tell('Stopped after ' + search.seconds.toPrecision(2) + ' s; not proved: the best may be ' + (search.gap < 0.995 ? (search.gap * 100).toFixed(1) + '%' : 'any amount') + ' faster.', 'Go on searching', () => answer(120));
  draw();
  settle(begun);
  drawDoctor('of-plan', request, now.plan.layout);
}
function settle(begun) {
  now.searching = false;
  document.documentElement.dataset.answers = String(Number(document.documentElement.dataset.answers || 0) + 1);
  document.documentElement.dataset.milliseconds = begun ? (performance.now() - begun).toFixed(1) : '';
}

// ---- the answer
const percent = (share) => share > 0.99 && share < 1 ? 'over 99%' : Math.floor(share * 100 + 1e-9) + '%';
function rangeOf(confidence) {
  if (!confidence || !confidence.least_s || !confidence.most_s) return '';
  return seconds(confidence.least_s * 1e6) + ' to ' + seconds(confidence.most_s * 1e6) + ' in 8 of 10 cases';
}
function draw() {
  const {plan, data} = now, out = $('out');
  const scrolled = window.scrollY;
  out.textContent = '';
  document.title = data.headline[0][1] + ': ' + data.title + ' - MPT';
  showDefaults(plan, data);
  // The places first: a browser that is asked for widths between drawings lays the page out each time.
  const columns = () => { const pair = element('div', out, null, {class: 'pair'}); return [element('div', pair), element('div', pair)]; };
  const top = element('div', out), first = columns(), doctor = element('div', out, null, {id: 'of-plan'}), middle = element('div', out), last = columns(), end = element('div', out);
  for (const place of [...first, doctor, middle, ...last]) place.mptWidth = place.clientWidth;
  drawTop(top, plan, data);
  mptDraw.memory(first[0], data);
  mptDraw.time(first[1], data);
  if (now.doctor) mptDraw.doctor(doctor, now.doctor);
  const teach = section('What if', 'teach', middle);
  element('p', teach, 'Drag: the planner answers for each value. The plan above stays as it is.', {class: 'note'});
  drawSliders(teach, plan);
  element('p', teach, '', {id: 'what-if', role: 'status'});
  const steps = element('div', teach, null, {id: 'steps'});
  steps.mptWidth = middle.mptWidth;
  mptDraw.timeline(steps, data);
  mptDraw.front(middle, data, compare);
  section('Against the plan', 'compared', middle).hidden = true;
  mptDraw.ranking(middle, data, compare);
  drawWhyNot(last[0]);
  mptDraw.reasons(last[0], data);
  drawProof(last[1], plan, data);
  mptDraw.cluster(end, data);
  window.scrollTo(0, scrolled);
}
// The memory doctor of a layout that answers the question, or comes nearest to it.
async function drawDoctor(id, request, layout, mine = asked) {
  if ($('doctor')) $('doctor').remove();  // of an older answer
  const found = await ask({do: 'doctor', request: Object.assign({}, request, {layout: layout, bounds: undefined, gpus: undefined})});
  if (mine !== asked || found.error) return;
  now.doctor = id === 'of-plan' ? found.answer : null;
  mptDraw.doctor($(id), found.answer);
}
// What the planner took where the question says nothing.
function showDefaults(plan, data) {
  if (!value('framework')) field('framework').options[0].textContent = 'default: ' + plan.layout.execution.framework;
  if (!value('precision')) field('precision').options[0].textContent = plan.layout.precision;
  field('seq').placeholder = plan.workload.sequence;
  field('memory').placeholder = data.memory_limit_text;
}
function drawTop(parent, plan, data) {
  const top = element('section', parent, null, {class: 'top', id: 'recommendation', 'aria-labelledby': 'step'});
  element('p', top, data.title + ': ' + data.subtitle, {class: 'soft'});
  const head = element('h1', top, data.headline[0][1] + ' per step', {class: 'step', id: 'step'});
  const sure = plan.prediction.confidence;
  element('span', head, rangeOf(sure));
  if (sure && sure.fits !== undefined && sure.fits !== null) element('span', head, 'fits: ' + percent(sure.fits), {class: 'pill' + (sure.fits < 0.9 ? ' less' : '')});
  element('p', top, data.facts[0][1][0].toUpperCase() + data.facts[0][1].slice(1) + '.', {class: 'sentence'});
  element('code', element('p', top), data.ranking[0][0]);
  mptDraw.facts(top, 'figures', data.headline.slice(1));
  drawChoices(top, plan, data);
  drawCertainty(top, plan, data);
  for (const note of plan.notes || []) element('p', top, note, {class: 'note'});
  drawActions(top);
}
// What the plan's rows are there for, by its own words.
function roles(plan) {
  const all = new Map([[0, 'RECOMMENDED']]);
  if (plan.risk) all.set(plan.risk.try_first - 1, 'TRY FIRST').set(plan.risk.fall_back - 1, 'FALL BACK');
  plan.ranking.forEach((row, index) => { if (row.role === 'simplest' && !all.has(index)) all.set(index, 'SIMPLEST'); });
  return [...all].sort((a, b) => (a[1] === 'TRY FIRST' ? -1 : 0) - (b[1] === 'TRY FIRST' ? -1 : 0));
}
function drawChoices(parent, plan, data) {
  const all = roles(plan);
  if (all.length < 2) return;
  const choices = element('div', parent, null, {class: 'choices', role: 'group', 'aria-label': 'What to run'});
  for (const [index, word] of all) {
    const row = data.ranking[index], sure = plan.ranking[index].confidence || {};
    const button = element('button', choices, null, {type: 'button', 'aria-current': String(index === 0)});
    element('em', button, word);
    element('strong', button, row[2]);
    element('span', button, row[4] + (sure.fits !== undefined && sure.fits !== null ? ', fits ' + percent(sure.fits) : ''));
    element('code', button, row[0].replace(' (simplest)', ''));
    const more = plan.ranking[index].step_time_s / plan.ranking[0].step_time_s - 1;
    if (index > 0) element('small', button, (Math.abs(more) * 100).toFixed(1) + '% ' + (more < 0 ? 'faster' : 'slower') + ' than the plan');
    button.onclick = () => compare(index);
  }
}
function drawCertainty(parent, plan, data) {
  const drawn = plan.search.drawn;
  if (!drawn || drawn.other_wins < 0.1) return;
  const text = element('p', parent, null, {class: 'unsure'});
  element('b', text, 'The order is uncertain. ');
  let said = 'If times are off as in published runs, another layout is faster in ' + percent(drawn.other_wins) + ' of draws; this one then takes ' + (drawn.regret_mean * 100).toFixed(1) + '% longer on average.';
  const measure = (drawn.measure || []).filter((place) => data.ranking[place - 1]);
  if (measure.length === 2) said += ' To decide, time ranks ' + measure.join(' and ') + ' for 50 steps.';
  text.appendChild(document.createTextNode(said));
}

// ---- links, commands, files
const word = (text) => /^[\w.,:+@/%-]+$/.test(text) ? text : "'" + text.replace(/'/g, "'\\''") + "'";
function commandOf(request) {
  if (typeof request.model === 'object' || typeof request.cluster === 'object') return 'mpt-plan --request request.json';
  const parts = ['mpt-plan'];
  const add = (key, one) => {
    parts.push('--' + key.replace(/_/g, '-'));
    if (one !== true) parts.push(word(Array.isArray(one) ? one.join(',') : String(one)));
  };
  for (const key in request) if (key !== 'bounds') add(key, request[key]);
  for (const key in request.bounds || {}) add(key, request.bounds[key]);
  return parts.join(' ');
}
function pythonOf(request) {
  const literal = (one) => one === true ? 'True' : one === false ? 'False' : one === null ? 'None' : Array.isArray(one) ? '[' + one.map(literal).join(', ') + ']' :
    typeof one === 'object' ? '{' + Object.keys(one).map((key) => JSON.stringify(key) + ': ' + literal(one[key])).join(', ') + '}' : JSON.stringify(one);
  const options = Object.assign({}, request, request.bounds);
  delete options.bounds;
  const parts = Object.keys(options).map((key) => key + '=' + literal(options[key]));
  return 'import mpt\nplan = mpt.plan(' + parts.join(', ') + ')\nprint(plan)';
}
let toasted = null;
function toast(text) {
  $('toast').textContent = text;
  $('toast').classList.add('on');
  clearTimeout(toasted);
  toasted = setTimeout(() => $('toast').classList.remove('on'), 2200);
}
async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
    toast('Copied: ' + what);
  } catch (error) {
    // Pages of a file may lack the clipboard's permission.
    const box = element('textarea', document.body, text);
    box.select();
    const done = document.execCommand('copy');
    box.remove();
    toast(done ? 'Copied: ' + what : 'The browser does not let the page copy');
  }
}
function download(name, text) {
  const link = element('a', document.body, null, {href: URL.createObjectURL(new Blob([text])), download: name});
  link.click();
  setTimeout(() => { URL.revokeObjectURL(link.href); link.remove(); }, 1000);
}
function drawActions(parent) {
  const row = element('div', parent, null, {class: 'actions'});
  const button = (text, act, kind) => { element('button', row, text, {type: 'button', class: kind || ''}).onclick = act; };
  button('Copy link', () => copy(location.href, 'the link'), 'first');
  button('Copy command', () => {
    const command = commandOf(now.request);
    copy(command, command);
    if (command.endsWith('request.json')) download('request.json', JSON.stringify(now.request, null, 1));
  });
  button('Copy Python', () => copy(pythonOf(now.request), 'Python'));
  button('plan.json', () => download('plan.json', JSON.stringify(now.plan)));
  button('Report', async () => {
    const report = await ask({do: 'report', plan: now.plan});
    if (report.error) toast(report.error.text);
    else download('report.html', report.answer.html);
  });
  const to = element('select', row, null, {'aria-label': 'Export for', id: 'export'});
  element('option', to, 'Export \u2026', {value: ''});
  for (const target of now.names.exports) element('option', to, target.name, {value: target.name, title: target.what});
  to.onchange = async () => {
    const target = to.value;
    to.value = '';
    const made = await ask({do: 'export', plan: now.plan, to: [target]});
    if (made.error) return toast(made.error.text);
    for (const file of made.answer[0].files) download(file.name.replace(/\//g, '_'), file.text);
    for (const need of made.answer[0].needs) toast('Needs ' + need);
  };
}

// ---- what if: one value at a time
function drawSliders(parent, plan) {
  const row = element('div', parent, null, {class: 'sliders'}), layout = plan.layout, batch = plan.workload.global_batch;
  const one = layout.data * layout.micro_batch, passes = batch / one;
  const apart = (values) => [...new Set(values)].filter((v) => v >= 1).sort((a, b) => a - b);
  const ranks = layout.pipeline * layout.data, layers = layout.layers_per_stage.reduce((sum, n) => sum + n, 0);
  const levels = plan.cluster.levels, level = levels[levels.length - 1], speed = level && level.bandwidth_bytes_per_s;
  const sliders = [
    {id: 'if-batch', title: 'Micro-batches', values: apart([1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, passes]), at: passes, text: (v) => v + ' (batch ' + v * one + ')',
      request: (v) => ({do: 'estimate', draw: true, request: Object.assign({}, now.request, {global_batch: v * one, layout: layout}, {bounds: undefined})})},
    {id: 'if-stages', title: 'Pipeline stages', values: apart([...Array(ranks).keys()].map((k) => k + 1).filter((k) => ranks % k === 0 && k <= layers)), at: layout.pipeline, text: String,
      request: (v) => ({do: 'plan', draw: true, request: Object.assign({time_limit: kLimit, gap: '1%'}, now.request, {bounds: Object.assign({}, now.request.bounds, {tp: [layout.tensor], cp: [layout.context], pp: [v]}, {dp: undefined})})})}];
  if (speed && !plan.cluster.groups.length) sliders.push({id: 'if-link', title: 'Speed of ' + level.name, values: [1 / 16, 1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8].map((k) => k * speed), at: speed, text: (v) => (v / 1e9).toPrecision(3) + ' GB/s',
    request: (v) => ({do: 'estimate', draw: true, request: Object.assign({}, now.request, {layout: layout, cluster: Object.assign({}, plan.cluster, {levels: levels.slice(0, -1).concat(Object.assign({}, level, {bandwidth_bytes_per_s: v}))})}, {bounds: undefined, gpus: undefined})})});
  for (const slider of sliders) {
    const cell = element('div', row), label = element('label', cell, slider.title + ' ', {for: slider.id});
    const shown = element('output', label, '', {for: slider.id});
    const input = element('input', cell, null, {type: 'range', id: slider.id, min: '0', max: String(slider.values.length - 1), step: '1'});
    input.value = String(slider.values.indexOf(slider.at));
    input.disabled = slider.values.length < 2;
    const show = () => { const text = slider.text(slider.values[input.value]); shown.textContent = text; input.setAttribute('aria-valuetext', text); };
    show();
    input.oninput = () => {
      show();
      for (const other of sliders) if (other !== slider) other.back();
      whatIf(slider, slider.values[input.value]);
    };
    slider.back = () => { input.value = String(slider.values.indexOf(slider.at)); show(); };
  }
  element('button', element('div', row), 'As planned', {type: 'button', id: 'if-reset'}).onclick = () => {
    for (const slider of sliders) slider.back();
    asIf(null);
  };
}
let whats = 0;
function asIf(data) {
  $('steps').textContent = '';
  mptDraw.timeline($('steps'), data || now.data);
  if (!data) $('what-if').textContent = '';
}
async function whatIf(slider, v) {
  const mine = ++whats;
  if (v === slider.at) return asIf(null);
  if (now.searching) return;
  const found = await ask(slider.request(v), true);
  if (mine !== whats) return;
  const line = $('what-if');
  if (found.error) { line.textContent = found.error.text; return settle(); }
  const p = found.answer.plan.prediction;
  line.textContent = slider.title + ' ' + slider.text(v) + ': ';
  element('b', line, seconds(p.step_time_s * 1e6) + ' per step, ' + (p.bubble_share * 100).toFixed(1) + '% idle, ' + Math.round(p.tokens_per_s).toLocaleString('en') + ' tokens/s');
  if (found.answer.fits === false) line.appendChild(document.createTextNode('; it does not fit'));
  if (found.answer.plan.layout && found.answer.plan.ranking.length) line.appendChild(document.createTextNode('. ' + found.answer.drawing.ranking[0][0]));
  asIf(found.answer.drawing);
  settle();
}

// ---- one layout against the plan
async function compare(index) {
  const rows = now.data.front.length ? now.plan.front : now.plan.ranking, place = $('compared');
  if (!rows[index]) return;
  const request = Object.assign({}, now.request, {layout: rows[index].layout, bounds: undefined, gpus: undefined});
  const found = await ask({do: 'estimate', request: request, draw: true});
  if (found.error) return toast(found.error.text);
  const data = found.answer.drawing;
  place.textContent = '';
  place.hidden = false;
  element('h2', place, 'Against the plan: ' + data.ranking[0][0], {id: 'compared-title'});
  element('p', place, data.facts[0][1] + '.', {class: 'note'});
  const parts = new Map(now.data.parts.map((p) => [p[0], [p[1], 0]]));
  for (const p of data.parts) parts.set(p[0], [(parts.get(p[0]) || [0])[0], p[1]]);
  const lines = [['step', now.plan.prediction.step_time_s, found.answer.plan.prediction.step_time_s]].concat([...parts].map(([name, v]) => [name.replace('idle: ', '\u2003of it: '), v[0], v[1]]));
  table(place, ['*', 'the plan', 'this one', 'difference'], lines.map((l) => [l[0], seconds(l[1] * 1e6), seconds(l[2] * 1e6), signed(l[2] - l[1])])
    .concat([['peak memory', now.data.headline[3][1], data.headline[3][1], '']]));
  const row = element('div', place, null, {class: 'actions'});
  element('button', row, 'Download its plan.json', {type: 'button'}).onclick = () => download('plan.json', JSON.stringify(found.answer.plan));
  place.scrollIntoView({block: 'nearest'});
  settle();
}
function drawWhyNot(parent) {
  const place = section('Why not \u2026?', 'why-not', parent);
  element('p', place, 'Any layouts by their options, such as tp=8, or pp=1 with zero=3.', {class: 'note'});
  const form = element('form', place);
  const input = element('input', form, null, {'aria-label': 'Layouts to ask about, such as tp=8', placeholder: 'tp=8', id: 'why-not-layout', spellcheck: 'false', autocomplete: 'off'});
  element('button', form, 'Ask', {type: 'submit'});
  const said = element('pre', place, '', {role: 'status', id: 'why-not-said'});
  form.onsubmit = async (event) => {
    event.preventDefault();
    said.textContent = 'Searching \u2026';
    const found = await ask({do: 'why_not', plan: now.plan, layout: input.value.trim() || 'tp=8'});
    said.textContent = found.error ? found.error.text : found.answer.text;
    settle();
  };
}
function drawProof(parent, plan, data) {
  const proof = section('Proof, and how far to trust it', 'proof', parent), s = plan.search;
  element('p', proof, data.search);
  table(proof, ['*layouts', ''], [['do not fit', s.over_memory], ['are provably slower', s.over_bound], ['are duplicates', s.same], ['were simulated', s.simulated], ['were not reached', s.not_reached]]
    .filter((row) => row[1] > 0).map((row) => [row[0], row[1].toLocaleString('en')]));
  mptDraw.evidence(proof, data);
  element('p', proof, 'Times from: ' + data.costs, {class: 'note'});
}

// ---- files
// A cluster counts its nodes or has parts; all else is a model's, and the planner says what it lacks.
function isCluster(json) { return ['nodes', 'parts', 'levels', 'gpus_per_node', 'devices'].some((key) => key in json); }
function takeFile(name, text, target) {
  let json = null;
  clearErrors();
  try { json = JSON.parse(text); } catch (error) { json = null; }
  const kind = target || (json && isCluster(json) ? 'cluster' : 'model');
  if (json === null || typeof json !== 'object' || Array.isArray(json)) {
    field(kind).setAttribute('aria-invalid', 'true');
    $(field(kind).id + '-error').textContent = name + ' is not a JSON object; expected a config.json of Hugging Face' + (kind === 'cluster' ? ' or a cluster file' : '') + '.';
    return;
  }
  files[kind] = {name: name, value: json};
  field(kind).value = 'file: ' + name;
  if (kind === 'cluster') field('nodes').value = '';
  changed();
}
document.addEventListener('dragover', (event) => { event.preventDefault(); document.body.classList.add('dropping'); });
document.addEventListener('dragleave', (event) => { if (!event.relatedTarget) document.body.classList.remove('dropping'); });
document.addEventListener('drop', async (event) => {
  event.preventDefault();
  document.body.classList.remove('dropping');
  const file = event.dataTransfer.files[0];
  if (file) takeFile(file.name, await file.text(), ['model', 'cluster'].includes(event.target.name) ? event.target.name : null);
});
for (const id of ['model', 'cluster']) {
  field(id).addEventListener('input', () => { files[id] = null; });
  field(id).addEventListener('paste', (event) => {
    const text = event.clipboardData.getData('text');
    if (!/^\s*\{/.test(text)) return;
    event.preventDefault();
    takeFile('pasted', text, id);
  });
}

// ---- begin
function takeNames(names, version) {
  now.names = names;
  for (const model of names.models) for (const name of [model.name].concat(model.ids)) element('option', $('models'), null, {value: name});
  for (const cluster of names.clusters) element('option', $('clusters'), cluster.gpus_per_node + ' x ' + cluster.gpu + ' a node', {value: cluster.name});
  const chosen = value('framework'), listed = [...field('framework').options].map((o) => o.value);
  for (const one of names.frameworks) {
    if (listed.includes(one.name)) [...field('framework').options].find((o) => o.value === one.name).textContent = one.title;
    else element('option', field('framework'), one.title, {value: one.name});
  }
  field('framework').value = chosen;
  showCluster();
  $('version').textContent = 'mpt ' + version.version + ', data ' + version.data.slice(0, 12) + '.';
}
$('form').addEventListener('input', changed);
$('form').addEventListener('submit', (event) => event.preventDefault());
$('fold').onclick = () => { const open = $('ask').classList.toggle('open'); $('fold').setAttribute('aria-expanded', String(open)); };
window.addEventListener('hashchange', () => { fill(requestAt(location.hash)); changed(); });
// Drawings are of one width or another (mptDraw): drawn again where a place passes from one to the other.
window.addEventListener('resize', () => {
  if ([...document.querySelectorAll('.pair > div')].some((place) => mptDraw.isNarrow(place) !== mptDraw.isNarrow({clientWidth: place.clientWidth}))) draw();
});
fill(location.hash.length > 1 ? requestAt(location.hash) : {model: 'llama3-70b', cluster: 'dgx-h100:8', global_batch: 512});
changed();
planner.loaded = load();
planner.loaded.then(() => { document.documentElement.dataset.loaded = 'true'; }, (error) => tell('The planner could not start: ' + error.message));
})();
