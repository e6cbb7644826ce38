'use strict';
// MPT's drawings of plans and runs, for the report, the page and notebooks. Each is a function (parent, data), with
// data from reports/html.cpp. Only mptDraw is global.
const mptDraw = (function () {

// ---- small builders; text always goes in as text, never as markup
function element(name, parent, text, attributes) {
  const made = document.createElement(name);
  if (text !== undefined && text !== null) made.textContent = text;
  for (const key in attributes || {}) {
    if (key === 'style') made.style.cssText = attributes.style;  // a strict policy of a page allows this only
    else made.setAttribute(key, attributes[key]);
  }
  if (parent) parent.appendChild(made);
  return made;
}
function shape(name, parent, attributes, text) {
  const made = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const key in attributes) made.setAttribute(key, attributes[key]);
  if (text !== undefined) made.textContent = text;
  parent.appendChild(made);
  return made;
}
function section(title, id, parent) {
  const made = element('section', parent, null, {id: id, 'aria-labelledby': id + '-title'});
  element('h2', made, title, {id: id + '-title'});
  return made;
}
function picture(parent, width, height, label) {
  return shape('svg', parent, {viewBox: '0 0 ' + width + ' ' + height, role: 'img', 'aria-label': label});
}
// The bubble shows the figures of the shape under the pointer. There is only one.
function hover(target, text) {
  const tip = document.getElementById('tip') || element('div', document.body, '', {id: 'tip', role: 'status'});
  const show = (left, top) => {
    tip.textContent = text;
    tip.style.visibility = 'visible';
    tip.style.left = Math.max(0, Math.min(left, window.innerWidth - 270)) + 'px';
    tip.style.top = top + 'px';
  };
  const atPointer = (event) => show(event.clientX + 12, event.clientY + 14);
  target.addEventListener('pointermove', atPointer);
  target.addEventListener('pointerdown', atPointer);  // a tap
  target.addEventListener('focus', () => { const box = target.getBoundingClientRect(); show(box.right, box.bottom + 4); });  // the keyboard
  for (const end of ['pointerleave', 'blur']) target.addEventListener(end, () => { tip.style.visibility = 'hidden'; });
}
function choosable(target, act) {
  target.setAttribute('role', 'button');
  target.style.cursor = 'pointer';
  target.addEventListener('click', act);
  target.addEventListener('keydown', (event) => {
    if (event.key !== 'Enter' && event.key !== ' ') return;
    event.preventDefault();
    act();
  });
}
function seconds(us, places = 3) {
  if (us < 1e-3) return '0';  // a picosecond is a rounding error
  return us >= 1e6 ? (us / 1e6).toPrecision(places) + ' s' : us >= 1e3 ? (us / 1e3).toPrecision(places) + ' ms' : us.toPrecision(places) + ' us';
}
function bytes(n, digits = 3) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  if (n === 0) return '0';
  let u = 0;
  while (n >= 1024 && u < 4) { n /= 1024; ++u; }
  return (n < 999.5 || digits > 3 ? n.toPrecision(digits) : n.toFixed(0)) + ' ' + units[u];
}
const signed = (s) => Math.abs(s) < 1e-9 ? '' : (s < 0 ? '\u2212' : '+') + seconds(Math.abs(s) * 1e6);
// Ticks of an axis with close ends, with enough digits to differ from each other.
function apart(values, format) {
  for (let digits = 3; ; ++digits) {
    const texts = values.map((v) => format(v, digits));
    if (digits === 7 || new Set(texts).size === values.length) return texts;
  }
}
// A head that begins with '*' is of a column of names, which keeps its width. `pick(row)`: names are buttons that call it.
function table(parent, heads, rows, chosen, pick) {
  const frame = element('div', parent, null, {class: 'scroll', tabindex: '0', role: 'region', 'aria-label': 'table'});
  const made = element('table', frame);
  const kinds = heads.map((text, index) => text[0] === '*' ? 'name' : index === 0 ? 'first' : '');
  const head = element('tr', element('thead', made));
  heads.forEach((text, index) => element('th', head, text.replace('*', ''), {scope: 'col', class: kinds[index]}));
  const body = element('tbody', made);
  rows.forEach((row, index) => {
    const line = element('tr', body, null, chosen === index ? {class: 'chosen'} : {});
    row.forEach((cell, place) => {
      if (typeof cell === 'number') element('i', element('td', line, null, {class: 'bar'}), null, {style: 'width:' + (cell * 100).toFixed(1) + '%'});
      else if (pick && kinds[place] === 'name') element('button', element('td', line, null, {class: 'name'}), cell, {type: 'button'}).onclick = () => pick(index);
      else element('td', line, cell, {class: kinds[place]});
    });
  });
  // If columns are beyond the edge, a line says so: phones show no scroll bar.
  const more = element('p', parent, 'More columns to the right: scroll the table sideways \u2192', {class: 'note more', hidden: ''});
  new ResizeObserver(() => { more.hidden = frame.scrollWidth <= frame.clientWidth + 2; }).observe(frame);
}
// Rows of a name, its value, and what stands beside it.
function facts(parent, kind, rows) {
  const made = element('dl', parent, null, {class: kind});
  for (const [name, value, beside] of rows) {
    const cell = element('div', made);
    element('dt', cell, name);
    element('dd', cell, value);
    if (beside !== undefined) element('dd', cell, beside, {class: 'beside'});
  }
}
// Rows of a colour and its text.
function legend(parent, rows) {
  const made = element('div', parent, null, {class: 'legend'});
  for (const [colour, text] of rows) {
    const item = element('span', made);
    element('i', item, null, {style: 'background:var(--' + colour + ')'});
    item.appendChild(document.createTextNode(text));
  }
}
function list(parent, items) {
  const made = element('ul', parent);
  items.forEach((text) => element('li', made, text));
}

// A phone and a column get narrower drawings with the same height of rows, not the same ones in small.
// `mptWidth`: its width, where somebody has measured it before drawing.
function isNarrow(parent) { return Math.min(window.innerWidth, parent.mptWidth || parent.clientWidth || Infinity) < 720; }

// ---- the recommendation, or the run; why; and what now
function recommendation(parent, data) {
  const first = section(data.comparison ? 'The run' : 'Recommendation', 'recommendation', parent);
  facts(first, 'headline', data.headline);
  facts(first, 'facts', data.facts);
}
function evidence(parent, data) {
  if (!data.evidence.length) return;
  element('h3', parent, 'How sure it is');
  element('p', parent, data.evidence[0]);
  list(parent, data.evidence.slice(1));
}
function reasons(parent, data) { list(section('Why this layout', 'reasons', parent), data.reasons); }
function next(parent, data) {
  const next = section('What now', 'next', parent);
  data.next.forEach((step) => {
    element('h3', next, step[0]);
    element('p', next, step[1]);
    if (step[2]) element('code', element('pre', next), step[2]);
  });
  evidence(next, data);
}
function comparison(parent, data) {
  if (data.comparison) table(section('Measured against predicted', 'comparison', parent), ['', 'predicted', 'measured', 'measured is'], data.comparison);
}

// ---- where the time goes, by cause and by kind of work
const colours = ['forward', 'backward', 'backward', 'weight', 'transfer', 'transfer', 'reduce', 'reduce', 'reduce', 'step'];
function time(parent, data) {
  const time = section('Where the time goes', 'time', parent);
  const stepSum = data.parts.reduce((sum, p) => sum + (p[0].startsWith('idle: ') ? 0 : p[1]), 0) || 1;
  const measuredSum = data.parts.reduce((sum, p) => sum + (p[2] || 0), 0);
  const percent = (part, whole) => (part / whole * 100).toFixed(1) + '%';
  table(time, ['*', '', 'predicted', 'share'].concat(measuredSum ? ['measured', 'share'] : []), data.parts.map((p) => {
    const row = [p[0].startsWith('idle: ') ? '\u2003of it: ' + p[0].slice(6) : p[0], p[1] / stepSum, seconds(p[1] * 1e6), percent(p[1], stepSum)];
    return measuredSum ? row.concat(p[2] === null ? ['', ''] : [seconds(p[2] * 1e6), percent(p[2], measuredSum)]) : row;
  }));
  // Of all compute time, by kind of work.
  const share = data.series.map((s) => {
    const sums = {};
    let last = 0;
    s[1].forEach((span) => {
      last = Math.max(last, span[4] + span[5]);
      if (span[1] <= 3 || span[1] === 9) sums[colours[span[1]]] = (sums[colours[span[1]]] || 0) + span[5];
    });
    const whole = last * data.ranks;
    sums.idle = whole - Object.values(sums).reduce((a, b) => a + b, 0);
    return {name: s[0], sums: sums, whole: whole};
  });
  const narrow = isNarrow(parent), wideTime = narrow ? 540 : 1100, timeLeft = narrow ? 104 : 96;
  const timeDrawing = picture(time, wideTime, share.length * 44 + 6, 'Share of forward, backward, optimizer and idle time');
  const works = {forward: 'forward', backward: 'backward', weight: 'weight gradient', step: 'optimizer', idle: 'idle'};
  share.forEach((s, index) => {
    const y = index * 44;
    let x = timeLeft;
    shape('text', timeDrawing, {x: 0, y: y + 23}, s.name);
    Object.keys(works).forEach((k) => {
      const part = (s.sums[k] || 0) / s.whole, w = part * (wideTime - timeLeft - 4);
      hover(shape('rect', timeDrawing, {x: x, y: y + 4, width: Math.max(0, w), height: 28, fill: 'var(--' + k + ')', stroke: 'var(--line)'}), s.name + ', ' + works[k] + ': ' + (part * 100).toFixed(1) + '%');
      const text = works[k] + ' ' + (part * 100).toFixed(0) + '%';
      if (w > text.length * (narrow ? 10 : 7)) shape('text', timeDrawing, {x: x + w / 2, y: y + 23, 'text-anchor': 'middle', class: k === 'idle' ? '' : 'on-bar'}, text);
      x += w;
    });
  });
  element('p', time, 'The table has the causes, averaged over all ' + data.gpu + 's. The bars show the same step by kind of work; the pale part is idle time.', {class: 'note'});
}

function lastMoment(series) {
  return Math.max(1, ...series.map((s) => s[1].reduce((m, span) => Math.max(m, span[4] + span[5]), 0)));
}

// ---- the pipeline's timeline: predicted above measured on one axis
function timeline(parent, data) {
  const timeline = section('One step, ' + data.unit + ' by ' + data.unit, 'timeline', parent);
  const controls = element('div', timeline, null, {class: 'controls'});
  const whole = () => place(0, end * 1.01);
  for (const [id, label, text, act] of [['zoom-in', 'Zoom in', '+', () => zoom(0.5)], ['zoom-out', 'Zoom out', '\u2212', () => zoom(2)],
    ['left', 'Move left', '\u2190', () => move(-0.25)], ['right', 'Move right', '\u2192', () => move(0.25)], ['whole', 'Whole step', 'All', whole]]) {
    element('button', controls, text, {type: 'button', 'aria-label': label, id: 'timeline-' + id}).onclick = act;
  }
  legend(controls, [['forward', 'forward'], ['backward', 'backward'], ['weight', 'weight gradient'], ['transfer', 'transfer'], ['reduce', 'reduction'], ['step', 'optimizer']]);
  const series = data.series;  // [name, spans]
  const end = lastMoment(series);
  const shown = element('p', timeline, '', {class: 'note', id: 'timeline-shown'});
  const narrow = isNarrow(parent);
  // Of a step with many micro-batches first what can be read: the first passes of the first rank.
  const passes = series[0][1].filter((span) => span[0] === 0 && span[1] <= 3).map((span) => span[4] + span[5]).sort((a, b) => a - b);
  const readable = narrow ? 16 : 40;
  const view = {from: 0, to: passes.length > 1.5 * readable ? Math.max(passes[readable - 1], end / 200) : end * 1.01};
  const width = narrow ? 560 : 1100, left = narrow ? 84 : 74, rowHeight = Math.max(9, Math.min(26, 420 / (data.ranks * series.length)));
  const blockHeight = data.ranks * rowHeight + 30;
  const drawing = picture(timeline, width, series.length * blockHeight + 26, 'Timeline of one step: ' + series.map((s) => s[0]).join(' and '));
  drawing.setAttribute('tabindex', '0');
  drawing.id = 'timeline-drawing';
  function draw() {
    drawing.textContent = '';
    const scale = (width - left) / (view.to - view.from);
    const clip = shape('clipPath', shape('defs', drawing, {}), {id: 'plot'});
    shape('rect', clip, {x: left, y: 0, width: width - left, height: series.length * blockHeight});
    series.forEach((s, block) => {
      const top = block * blockHeight + 20;
      shape('text', drawing, {x: 0, y: top - 6, class: 'ink'}, s[0]);
      const plot = shape('g', drawing, {'clip-path': 'url(#plot)'});
      for (let r = 0; r < data.ranks; ++r) {
        shape('rect', plot, {x: left, y: top + r * rowHeight, width: width - left, height: rowHeight - 1, fill: 'var(--idle)'});
        if (data.ranks <= 24 || r % 4 === 0) shape('text', drawing, {x: 0, y: top + r * rowHeight + rowHeight * 0.7}, data.unit + ' ' + r);
      }
      s[1].forEach((span) => {
        const x = left + (span[4] - view.from) * scale, w = span[5] * scale;
        if (x > width || x + w < left) return;
        const thin = span[1] === 4 || span[1] === 5;
        const bar = shape('rect', plot, {x: x, y: top + span[0] * rowHeight + (thin ? rowHeight - 5 : 0), width: Math.max(w - 0.4, 0.6),
          height: thin ? 4 : rowHeight - 1, fill: 'var(--' + colours[span[1]] + ')', class: span[2] % 2 ? 'odd' : ''});
        hover(bar, data.kinds[span[1]] + (span[2] >= 0 ? ', stage ' + span[2] : '') + (span[3] >= 0 ? ', micro-batch ' + span[3] : '') +
          ': from ' + seconds(span[4]) + ' for ' + seconds(span[5]));
        if (!thin && w > 26 && rowHeight > 14 && span[3] >= 0) {
          shape('text', plot, {x: x + w / 2, y: top + span[0] * rowHeight + rowHeight * 0.68, 'text-anchor': 'middle', class: 'on-bar'}, String(span[3]));
        }
      });
    });
    const bottom = series.length * blockHeight + 8;
    for (let k = 0; k <= 4; ++k) {
      const t = view.from + (view.to - view.from) * k / 4;
      shape('text', drawing, {x: left + (width - left) * k / 4, y: bottom, 'text-anchor': k === 0 ? 'start' : k === 4 ? 'end' : 'middle'}, seconds(t));
    }
    const part = (view.to - view.from) / end;
    shown.textContent = part > 0.99 ? 'The whole step.' : 'Shown: ' + (part * 100).toPrecision(2) + '% of the step; the button All shows the rest.';
    drawing.dataset.from = String(view.from);
    drawing.dataset.to = String(view.to);
  }
  function zoom(factor, at) {
    const centre = at === undefined ? (view.from + view.to) / 2 : at;
    const span = Math.min(end * 1.01, Math.max(end / 2000, (view.to - view.from) * factor));
    const share = (centre - view.from) / (view.to - view.from);
    place(centre - span * share, span);
  }
  function place(from, span) {
    view.from = Math.max(0, Math.min(from, end * 1.01 - span));
    view.to = view.from + span;
    draw();
  }
  function move(share) { place(view.from + (view.to - view.from) * share, view.to - view.from); }
  function timeAt(event) {
    const box = drawing.getBoundingClientRect();
    const x = (event.clientX - box.left) / box.width * width;
    return view.from + (x - left) / (width - left) * (view.to - view.from);
  }
  drawing.addEventListener('wheel', (event) => {
    if (!event.ctrlKey && !event.shiftKey) return;  // plain scrolling scrolls the page
    event.preventDefault();
    zoom(event.deltaY > 0 ? 1.25 : 0.8, timeAt(event));
  }, {passive: false});
  let dragged = null;
  drawing.addEventListener('pointerdown', (event) => { dragged = {at: event.clientX, from: view.from}; });
  drawing.addEventListener('pointermove', (event) => {
    if (event.buttons === 0) dragged = null;
    if (!dragged) return;
    const box = drawing.getBoundingClientRect();
    place(dragged.from - (event.clientX - dragged.at) / box.width * (view.to - view.from), view.to - view.from);
  });
  drawing.addEventListener('keydown', (event) => {
    const keys = {'+': () => zoom(0.5), '-': () => zoom(2), ArrowLeft: () => move(-0.25), ArrowRight: () => move(0.25), Home: whole};
    if (!keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  });
  draw();
  timeline.appendChild(shown);
  element('p', timeline, (data.cut ? 'Compute only: the step has too many instructions to draw all. ' : '') +
    'Point at a bar, or tap it, for its figures. Drag to move; the buttons, Ctrl and wheel, or + and - zoom.', {class: 'note'});
}

// ---- memory, stacked by kind, with the limit; memory over the step to the right, in a picture of the same height
function sizes(parent, data) {
  const stacks = data.memory.length, few = stacks <= 14, narrow = isNarrow(parent);
  const bar = few ? Math.max(22, Math.min(stacks > 2 ? 64 : 40, 220 / stacks - 6)) : 14, flowHeight = few ? Math.max(246, stacks * (bar + 6) + 26) : 260;
  return {stacks, few, narrow, bar, flowHeight, wide: few || narrow ? 540 : 1100};
}
function memory(parent, data) {
  const {stacks, few, narrow, bar, flowHeight, wide} = sizes(parent, data);
  const memory = section('Memory of each ' + data.unit, 'memory', parent);
  const kinds = [['weights', 'forward', 'weights'], ['gradients', 'backward', 'gradients'], ['optimizer', 'weight', 'optimizer'], ['transfer', 'transfer', 'transfer buffers'], ['activations', 'reduce', 'activations']];
  const most = Math.max(...data.memory.map((m) => Math.max(kinds.reduce((sum, k) => sum + m[k[0]], 0), m.measured || 0)));
  const showLimit = data.memory_limit < most * 4;
  const top = Math.max(most, showLimit ? data.memory_limit : 0) * 1.04;
  // Of all chunks of a stage; the bubble tells them apart.
  const layersOf = (m) => m.layers.split('+').reduce((sum, n) => sum + Number(n), 0);
  const layered = stacks > 1 && data.memory.every((m) => m.layers);
  const memoryLeft = (narrow ? 96 : 72) + (layered ? narrow ? 70 : 50 : 0), memoryScale = (wide - memoryLeft - 66) / top;
  const memoryDrawing = picture(memory, wide, few && stacks > 2 ? flowHeight : stacks * (bar + 6) + 6, 'Peak memory of each ' + data.unit + ' by kind');
  data.memory.forEach((m, index) => {
    const y = index * (bar + 6);
    let x = memoryLeft;
    shape('text', memoryDrawing, {x: 0, y: y + bar / 2 + 5}, data.unit + ' ' + m.rank + (layered ? ': ' + layersOf(m) + (layersOf(m) === 1 ? ' layer' : ' layers') : ''));
    kinds.forEach((k) => {
      const w = m[k[0]] * memoryScale;
      hover(shape('rect', memoryDrawing, {x: x, y: y, width: Math.max(w, 0), height: bar, fill: 'var(--' + k[1] + ')'}), data.unit + ' ' + m.rank + (m.layers ? ' of ' + m.layers + ' layers' : '') + ', ' + k[2] + ': ' + bytes(m[k[0]]));
      x += w;
    });
    shape('text', memoryDrawing, {x: wide, y: y + bar / 2 + 5, 'text-anchor': 'end', class: 'ink'}, m.text);
    if (m.measured !== undefined) {
      const at = memoryLeft + m.measured * memoryScale;
      hover(shape('rect', memoryDrawing, {x: at - 1.5, y: y - 2, width: 3, height: bar + 4, fill: 'var(--ink)'}), 'measured: ' + bytes(m.measured));
    }
  });
  if (showLimit) {
    const at = memoryLeft + data.memory_limit * memoryScale;
    shape('line', memoryDrawing, {x1: at, x2: at, y1: 0, y2: stacks * (bar + 6), stroke: 'var(--limit)', 'stroke-width': 2, 'stroke-dasharray': '5 4'});
  }
  legend(memory, kinds.map((k) => [k[1], k[2]]));
  // Few bars leave room for their figures.
  if (stacks <= 2) {
    table(memory, ['*'].concat(data.memory.map((m) => data.unit + ' ' + m.rank)), kinds.map((k) => [k[2]].concat(data.memory.map((m) => bytes(m[k[0]])))));
  }
  element('p', memory, 'Limit ' + data.memory_limit_text + (showLimit ? ' (dashed)' : ', far to the right') + (data.steps ? '; the dark mark is what the run measured' : '') + '.', {class: 'note'});
}
function memoryOverTime(parent, data) {
  const {narrow, flowHeight, wide} = sizes(parent, data);
  const end = lastMoment(data.series);
  const flow = section('Memory over the step', 'memory-over-time', parent);
  const flowEnd = wide - 5, flowBottom = flowHeight - 40;
  const flowDrawing = picture(flow, wide, flowHeight, 'Memory over one step, with the limit');
  const flowLeft = narrow ? 104 : 70;
  const flowMost = Math.max(...data.memory_over_time.map((m) => Math.max(...m[1])));
  const flowTop = Math.max(flowMost, data.memory_limit < flowMost * 4 ? data.memory_limit : 0) * 1.05;
  const flowY = (v) => flowBottom - v / flowTop * (flowBottom - 15);
  [0, 0.5, 1].forEach((k) => {
    shape('line', flowDrawing, {x1: flowLeft, x2: flowEnd, y1: flowY(flowTop * k), y2: flowY(flowTop * k), stroke: 'var(--line)'});
    shape('text', flowDrawing, {x: flowLeft - 6, y: flowY(flowTop * k) + 4, 'text-anchor': 'end'}, k === 0 ? '0' : bytes(flowTop * k));
  });
  const colourOf = (index) => ['forward', 'backward', 'weight', 'transfer', 'reduce', 'step', 'accent', 'ink'][index % 8];
  data.memory_over_time.forEach((m, index) => {
    const points = m[1].map((v, i) => (flowLeft + i / (m[1].length - 1) * (flowEnd - flowLeft)).toFixed(1) + ',' + flowY(v).toFixed(1)).join(' ');
    hover(shape('polyline', flowDrawing, {points: points, fill: 'none', stroke: 'var(--' + colourOf(index) + ')', 'stroke-width': 1.5}), data.unit + ' ' + m[0] + ': at most ' + bytes(Math.max(...m[1])));
  });
  legend(flow, data.memory_over_time.map((m, index) => [colourOf(index), data.unit + ' ' + m[0]]));
  if (data.memory_limit < flowTop) {
    shape('line', flowDrawing, {x1: flowLeft, x2: flowEnd, y1: flowY(data.memory_limit), y2: flowY(data.memory_limit), stroke: 'var(--limit)', 'stroke-width': 2, 'stroke-dasharray': '5 4'});
  }
  shape('text', flowDrawing, {x: flowLeft, y: flowBottom + 22}, '0');
  shape('text', flowDrawing, {x: flowEnd, y: flowBottom + 22, 'text-anchor': 'end'}, seconds(end));
  element('p', flow, 'Each forward pass fills memory and each backward pass frees it; of close points the highest is drawn.', {class: 'note'});
}

// ---- the memory doctor: what fills the fullest GPU, and what each switch of the framework saves
function doctor(parent, data) {
  const place = section('What fills a GPU, and what would save memory', 'doctor', parent), total = (sum, p) => sum + p.bytes;
  const colours = ['forward', 'gathered', 'backward', 'weight', 'reduce', 'loss', 'transfer', 'step'];
  const parts = data.memory.map((p, index) => Object.assign({colour: colours[index]}, p)).filter((p) => p.bytes > 0);
  const words = (p) => p.part + ' ' + bytes(p.bytes) + (p.with ? ' (with ' + p.with + ')' : ''), has = 'the GPU has ' + bytes(data.device_bytes);
  const wide = isNarrow(parent) ? 540 : 1100, scale = (wide - 2) / Math.max(parts.reduce(total, 0), data.device_bytes), limit = scale * data.device_bytes;
  const drawing = picture(place, wide, 46, 'Memory of the fullest GPU: ' + parts.map(words).join(', ') + '; ' + has);
  parts.forEach((p, index) => hover(shape('rect', drawing, {x: scale * parts.slice(0, index).reduce(total, 0), y: 4, width: scale * p.bytes, height: 38, fill: 'var(--' + p.colour + ')', stroke: 'var(--card)'}), words(p)));
  shape('line', drawing, {x1: limit, x2: limit, y1: 0, y2: 46, stroke: 'var(--ink)', 'stroke-width': 2, 'stroke-dasharray': '5 4'});
  legend(place, parts.map((p) => [p.colour, words(p)]).concat([['ink', has + ' (dashed)']]));
  for (const [heading, rows] of [['Switches, each alone', data.alone], ['Together, each on top of those above', data.together]]) {
    if (!rows.length) continue;
    element('h3', place, heading);
    table(place, ['*mpt-plan estimate --plan plan.json \u2026', 'saves', 'step', 'fits'], rows.map((s) => s.refusal ? [s.option + ' (' + s.written + ') does not go: ' + s.refusal, '', '', ''] :
      [s.option + ' (' + s.written + ')', bytes(s.saved_bytes), signed(s.added_s), Math.floor(s.likelihood * 100) + '%']));
  }
}

// ---- the run
function run(parent, data) {
  function curve(parent, column, label, format) {
    const drawn = picture(parent, 540, 210, label);
    const values = data.steps.map((s) => s[column]);
    const low = Math.min(...values), high = Math.max(...values), span = high - low || 1;
    const x = (i) => 60 + (values.length > 1 ? i / (values.length - 1) : 0.5) * 470;
    const y = (v) => 176 - (v - low) / span * 160;
    [low, (low + high) / 2, high].forEach((v) => {
      shape('line', drawn, {x1: 60, x2: 530, y1: y(v), y2: y(v), stroke: 'var(--line)'});
      shape('text', drawn, {x: 54, y: y(v) + 4, 'text-anchor': 'end'}, format(v));
    });
    shape('polyline', drawn, {points: values.map((v, i) => x(i).toFixed(1) + ',' + y(v).toFixed(1)).join(' '), fill: 'none', stroke: 'var(--accent)', 'stroke-width': 2});
    if (values.length <= 400) values.forEach((v, i) => hover(shape('circle', drawn, {cx: x(i), cy: y(v), r: 6, fill: 'transparent'}), 'step ' + data.steps[i][0] + ': ' + format(v)));
    shape('text', drawn, {x: 60, y: 200}, 'step ' + data.steps[0][0]);
    shape('text', drawn, {x: 530, y: 200, 'text-anchor': 'end'}, 'step ' + data.steps[data.steps.length - 1][0]);
  }
  if (data.steps && data.steps.length) {
    const run = element('div', parent, null, {class: 'pair'});
    curve(section('Loss', 'loss', run), 1, 'Loss by step', (v) => v.toFixed(3));
    curve(section('Tokens per second', 'throughput', run), 2, 'Tokens per second by step', (v) => v >= 1000 ? (v / 1000).toPrecision(3) + 'K' : v.toPrecision(3));
  }
}

// ---- time against memory: of the whole front where it was asked for, else of the ranked layouts
// `pick(row)`: points are buttons that call it with the row of the ranking, or of the front.
function front(parent, data, pick) {
  const hasFront = data.front.length > 0, points = hasFront ? data.front : data.ranking;
  // Ticks and a place for each value between `from` and `to`, in powers where values differ much. Values that
  // are close stay close: an axis spans a fifth of its highest value at least.
  const kLeastSpan = 0.2;
  function axis(values, from, to) {
    let low = Math.min(...values), high = Math.max(...values);
    const powers = low > 0 && high > 4 * low;
    if (high - low < kLeastSpan * high) {
      const middle = (low + high) / 2, half = Math.max(1e-12, kLeastSpan * high / 2);
      low = Math.max(0, middle - half);
      high = middle + half;
    }
    const share = (v) => powers ? Math.log(v / low) / Math.log(high / low) : (v - low) / (high - low);
    const ticks = [0, 1 / 3, 2 / 3, 1].map((k) => powers ? low * Math.pow(high / low, k) : low + k * (high - low));
    return {place: (v) => from + share(v) * (to - from), ticks: ticks, powers: powers, low: low, high: high};
  }
  if (points.length > 1) {
    const front = section(hasFront ? 'Alternatives: time against memory and ' + data.gpu + 's' : 'Alternatives: time against memory', 'front', parent);
    const legend = element('div', front, null, {class: 'controls'});
    const narrow = isNarrow(parent), wideFront = narrow ? 560 : 1100, height = 300;
    const plot = picture(front, wideFront, height, 'Step time against peak memory of ' + points.length + ' layouts; the table below has the numbers');
    plot.setAttribute('role', 'group');  // its points have accessible names
    const across = axis(points.map((r) => r[1]), narrow ? 124 : 100, wideFront - 40), up = axis(points.map((r) => r[6]), height - 56, 30);
    const plan = data.ranking[0][1], alike = data.equal_times;
    if (!across.powers) {
      const left = across.place(Math.max(across.low, plan * (1 - alike))), right = across.place(Math.min(across.high, plan * (1 + alike)));
      shape('rect', plot, {x: left, y: 20, width: right - left, height: height - 66, fill: 'var(--idle)'});
      shape('text', plot, {x: (left + right) / 2, y: 16, 'text-anchor': 'middle'}, 'within ' + 100 * alike + '%: a tie');
    }
    const heights = apart(up.ticks, bytes), times = apart(across.ticks, (t, digits) => seconds(t * 1e6, digits));
    up.ticks.forEach((m, index) => {
      shape('line', plot, {x1: narrow ? 104 : 84, x2: wideFront - 20, y1: up.place(m), y2: up.place(m), stroke: 'var(--line)'});
      shape('text', plot, {x: narrow ? 98 : 78, y: up.place(m) + 4, 'text-anchor': 'end'}, heights[index]);
    });
    across.ticks.forEach((t, index) => {
      const last = index > 0 && index + 1 === times.length;
      shape('text', plot, {x: last ? wideFront - 4 : across.place(t), y: height - 12, 'text-anchor': last ? 'end' : 'middle'}, times[index]);
    });
    if (data.memory_limit > up.low && data.memory_limit < up.high) {
      const y = up.place(data.memory_limit);
      shape('line', plot, {x1: narrow ? 104 : 84, x2: wideFront - 20, y1: y, y2: y, stroke: 'var(--limit)', 'stroke-width': 2, 'stroke-dasharray': '5 4', id: 'front-limit'});
      shape('text', plot, {x: wideFront - 20, y: y - 6, 'text-anchor': 'end'}, 'limit ' + data.memory_limit_text);
    }
    const counts = [...new Set(points.map((r) => r[7]))].sort((a, b) => b - a);
    const labels = [];  // boxes of the numbers, and of the dots
    const free = (box) => labels.every((b) => box[2] <= b[0] || b[2] <= box[0] || box[3] <= b[1] || b[3] <= box[1]);
    points.forEach((r) => { const x = across.place(r[1]), y = up.place(r[6]); labels.push([x - 7, y - 7, x + 7, y + 7]); });
    function number(group, x, y, text) {
      const size = narrow ? 17 : 12, wide = text.length * size * 0.62;
      for (let ring = 10; ring < 120; ring += 12) {
        for (let turn = 0; turn < 8; ++turn) {
          const at = [x + ring * Math.cos(turn * Math.PI / 4 - 0.6), y + ring * Math.sin(turn * Math.PI / 4 - 0.6)];
          const box = [at[0] - wide / 2, at[1] - size / 2, at[0] + wide / 2, at[1] + size / 2];
          if (!free(box) || box[1] < 0 || box[2] > wideFront) continue;
          labels.push(box);
          shape('text', group, {x: at[0], y: at[1] + size * 0.36, 'text-anchor': 'middle', class: 'ink number'}, text);
          return;
        }
      }
    }
    const palette = ['--forward', '--backward', '--weight', '--transfer', '--reduce', '--step', '--ink'];
    counts.forEach((count, index) => {
      const colour = 'var(' + palette[index % palette.length] + ')', group = shape('g', plot, {id: 'front-' + count});
      const own = points.filter((r) => r[7] === count).sort((a, b) => a[1] - b[1]);
      // No other layout of so many devices is faster with less memory than the line says.
      let least = Infinity, path = '';
      own.forEach((r) => {
        if (r[6] >= least) return;
        path += (path ? ' L ' + across.place(r[1]) + ' ' + up.place(least) + ' L ' : 'M ') + across.place(r[1]) + ' ' + up.place(r[6]);
        least = r[6];
      });
      shape('path', group, {d: path, fill: 'none', stroke: colour, 'stroke-width': 1.5, 'stroke-dasharray': '4 3'});
      own.forEach((r) => {
        const chosen = r[0] === data.ranking[0][0] && r[1] === data.ranking[0][1];
        const text = r[0] + ' on ' + r[7] + ': ' + r[2] + ', ' + r[4] + (r[9] ? ', fits: ' + r[9] : '') + ', ' + r[5] + ' tokens/s';
        const dot = shape('circle', group, {cx: across.place(r[1]), cy: up.place(r[6]), r: chosen ? 9 : 6, fill: colour, stroke: 'var(--card)', tabindex: '0', 'aria-label': text});
        hover(dot, text);
        if (pick) choosable(dot, () => pick(points.indexOf(r)));
        number(group, across.place(r[1]), up.place(r[6]), String(points.indexOf(r) + 1));
      });
      if (counts.length === 1) return;
      const toggle = element('button', legend, null, {type: 'button', 'aria-pressed': 'true', id: 'front-toggle-' + count});
      element('i', toggle, null, {style: 'background:' + colour, class: 'key'});
      toggle.appendChild(document.createTextNode(count + ' ' + data.gpu + 's'));
      toggle.onclick = () => {
        const shown = group.style.display === 'none';
        group.style.display = shown ? '' : 'none';
        toggle.setAttribute('aria-pressed', String(shown));
      };
    });
    element('p', front, 'Step time to the right, peak memory upwards; the large dot is the plan, and the numbers are those of the table below. ' +
      (hasFront ? 'Nothing is better than these in time, memory and ' + data.gpu + 's.' : 'mpt-plan --pareto shows all choices between time and memory.'), {class: 'note'});
    if (hasFront) {
      table(front, ['#', '*layout', data.gpu + 's', 'step time', 'peak memory', 'tokens/s'], points.map((r, index) => [String(index + 1), r[0], String(r[7]), r[2], r[4], r[5]]));
    }
  }
}
function ranking(parent, data, pick) {
  const place = section('The best layouts', 'ranking', parent), over = (r) => r[6] > data.memory_limit, sure = data.ranking.some((r) => r[9]);
  table(place, ['#', '*layout', 'step time', 'against 1', 'peak memory'].concat(sure ? ['fits'] : [], ['idle', 'tokens/s']),
    data.ranking.map((r, index) => [String(index + 1), r[0], r[2], index === 0 ? '' : r[8], r[4]].concat(sure ? [r[9]] : [], [r[3], r[5]])), 0, pick);
  const beyond = data.ranking.map((r, index) => over(r) ? index + 1 : 0).filter(Boolean);
  if (beyond.length) element('p', place, 'Beyond the limit of ' + data.memory_limit_text + ': ' + beyond.join(', ') + '. ' + (beyond.length > 1 ? 'They' : 'It') + ' may run out of memory.', {class: 'note'});
}

// ---- details: the cluster, what was left out, every instruction
function cluster(parent, data) {
  const cluster = section('The cluster, and what each link carries', 'cluster', parent);
  table(cluster, [data.gpu === 'GPU' ? '*GPU' : '*device', 'number', 'per node', 'memory', 'memory bandwidth', 'peak'], data.devices);
  table(cluster, ['*link', '*used by', data.gpu + 's that it connects', 'bandwidth per ' + data.gpu, 'latency'], data.links);
}
function rejected(parent, data) {
  const rejected = section('What was left out', 'rejected', parent);
  element('p', rejected, data.search);
  list(rejected, data.rejected);
  element('p', rejected, 'Times from: ' + data.costs, {class: 'note'});
}
function instructions(parent, data) {
  if (data.instructions) table(section('Every kind of work, predicted and measured', 'instructions', parent), ['*', 'predicted', 'measured', 'measured is'], data.instructions);
}

// The whole report.
function report(parent, data) {
  for (const part of [recommendation, reasons, next, comparison, time, timeline]) part(parent, data);
  const pair = element('div', parent, null, {class: sizes(parent, data).few ? 'pair' : ''});
  for (const part of [memory, memoryOverTime]) part(pair, data);
  for (const part of [run, front, ranking, cluster, rejected, instructions]) part(parent, data);
}

return {element, shape, isNarrow, section, picture, hover, seconds, signed, facts, evidence, bytes, table, list, recommendation, reasons, next, comparison, time, timeline, memory,
  memoryOverTime, doctor, run, front, ranking, cluster, rejected, instructions, report};
})();
