// The selection and everything that follows from it. The address can select too:
// #t=12.5us&chunk=3&rank=0&view=lanes.
function bytes(count) {
  const units = ['bytes', 'KiB', 'MiB', 'GiB'];
  let unit = 0;
  while (count >= 1024 && count % 1024 === 0 && unit < 3) { count /= 1024; unit++; }
  return `${count} ${units[unit]}`;
}

function facts() {
  const percent = data.bound > 0 ? `${(100 * data.algbw / data.bound).toFixed(1)}%` : '–';
  const list = [['time', time(data.time)], ['algbw', `${data.algbw.toPrecision(4)} GB/s`],
                ['bound', data.bound > 0 ? `${data.bound.toPrecision(4)} GB/s` : '–'], ['of the bound', percent]];
  $('facts').replaceChildren(...list.map(([term, value]) => {
    const div = document.createElement('div'), dt = document.createElement('dt'), dd = document.createElement('dd');
    dt.textContent = term;
    dd.textContent = value;
    div.append(dt, dd);
    return div;
  }));
  $('name').textContent = data.name;
  document.title = `${data.name} – Weft`;
  $('what').textContent = `${data.collective} of ${bytes(data.size)}, ${data.ranks} ranks on ${data.machine}; ` +
      `${data.steps.length} steps, ${data.slices} ${data.slices > 1 ? 'slices' : 'slice'}`;
  $('banner').hidden = !data.banner;
  $('banner').textContent = data.banner;
}

function table(title, lines) {  // lines: [cells, ns to go to, part of a bar]
  const heading = document.createElement('h2'), body = document.createElement('table');
  heading.textContent = title;
  for (const [cells, ns, part] of lines) {
    const row = body.insertRow();
    if (ns !== undefined) {
      row.dataset.ns = ns;
      row.onclick = () => choose({now: ns});
    }
    for (const cell of cells) row.insertCell().textContent = cell;
    if (part !== undefined) {
      row.cells[0].className = 'bar';
      row.cells[0].style.setProperty('--part', `${100 * part}%`);
    }
  }
  return [heading, body];
}

function drawSide() {
  const most = 200;
  if (state.piece >= 0) {
    // A message crosses several links: show one line for all of them.
    const hops = new Map();
    for (const [link, span, to, begin, end] of data.transfers) {
      if (!carries(span, state.piece)) continue;
      const key = `${span}.${to}`, hop = hops.get(key) || {span, to, begin, end, links: []};
      hop.end = Math.max(hop.end, end);
      hop.links.push(link);
      hops.set(key, hop);
    }
    const lines = [...hops.values()].sort((a, b) => a.begin - b.begin).slice(0, most).map(hop => [
      [time(hop.begin), `r${laneOf(hop.span)[0]} → r${hop.to}`, hop.links.length > 1 ?
          `over ${hop.links.slice(0, -1).map(l => nodeName(data.links[l][1])).join(', ')}` : ''], hop.begin]);
    document.body.dataset.hops = hops.size;
    $('side').replaceChildren(...table(`Way of chunk ${pieceName(state.piece)}`, lines));
    return;
  }
  const busiest = data.links.map((link, l) => [l, link[4]]).filter(l => l[1] > 0).sort((a, b) => b[1] - a[1] || a[0] - b[0]);
  $('side').replaceChildren(
    ...table('Busiest links', busiest.slice(0, 8).map(([l, use]) => [[linkName(l), `${(100 * use).toFixed(1)}%`], undefined, use])),
    ...table('Critical path', data.critical.slice(0, most).map(span => [
      [time(data.spans[span][0]), `r${laneOf(span)[0]} lane ${laneOf(span)[1]} step ${stepOf(span)[1]}`, stepOf(span)[2]],
      data.spans[span][0]])));
}

function mark() {
  $('now').textContent = time(state.now);
  $('scrub').value = 1000 * state.now / Math.max(1, data.time);
  $('chunk').value = state.piece;
  $('rank').value = state.rank;
  $('only-critical').checked = state.only;
  $('play').textContent = state.playing ? 'Pause' : 'Play';
  $('show-links').className = state.view === 'links' ? 'on' : '';
  $('show-lanes').className = state.view === 'lanes' ? 'on' : '';
  document.body.dataset.now = Math.round(state.now);
}

let waiting = false;
function choose(change) {
  const sideOld = state.piece;
  const rowsOld = `${state.view} ${state.rank} ${state.piece}`;
  Object.assign(state, change);
  state.now = Math.max(0, Math.min(data.time, state.now));
  if (state.piece !== sideOld) drawSide();
  if (`${state.view} ${state.rank} ${state.piece}` !== rowsOld) makeRows();
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    draw();
  });
}

function draw() {
  mark();
  drawMachine();
  drawRuler();
  drawTimeline();
}

let before = 0;
function play(at) {
  if (!state.playing) return;
  const seconds = Math.min(0.1, (at - before) / 1000);
  before = at;
  const now = state.now + data.time / 12 * seconds;  // the whole run in 12 seconds
  choose({now: now >= data.time ? 0 : now});
  requestAnimationFrame(play);
}

function option(select, value, text) {
  const o = document.createElement('option');
  o.value = value;
  o.textContent = text;
  select.append(o);
}

function start() {
  facts();
  layMachine();
  option($('chunk'), -1, 'all');
  const pieces = new Set();
  data.steps.forEach(s => { for (let i = 0; s[3] >= 0 && i < s[4]; i++) pieces.add(s[3] + i); });
  [...pieces].sort((a, b) => a - b).forEach(p => option($('chunk'), p, pieceName(p)));
  option($('rank'), -1, 'all');
  for (let r = 0; r < data.ranks; r++) option($('rank'), r, r);
  $('chunk').onchange = () => choose({piece: +$('chunk').value});
  $('rank').onchange = () => choose({rank: +$('rank').value});
  $('scrub').oninput = () => choose({now: $('scrub').value / 1000 * data.time});
  $('only-critical').onchange = () => choose({only: $('only-critical').checked});
  $('show-links').onclick = () => choose({view: 'links'});
  $('show-lanes').onclick = () => choose({view: 'lanes'});
  $('reset').onclick = () => choose({from: 0, to: data.time});
  $('play').onclick = () => {
    state.playing = !state.playing;
    before = performance.now();
    requestAnimationFrame(play);
    choose({});
  };
  document.addEventListener('keydown', event => {
    if (event.target.tagName === 'SELECT') return;
    const nudge = (state.to - state.from) / 200;
    if (event.key === ' ') { event.preventDefault(); $('play').click(); }
    if (event.key === 'ArrowLeft') choose({now: state.now - nudge});
    if (event.key === 'ArrowRight') choose({now: state.now + nudge});
  });
  window.addEventListener('resize', () => choose({}));
  const asked = new URLSearchParams(location.hash.slice(1)), change = {};
  if (asked.has('t')) change.now = 1000 * parseFloat(asked.get('t'));
  if (asked.has('chunk')) change.piece = +asked.get('chunk');
  if (asked.has('rank')) change.rank = +asked.get('rank');
  if (asked.has('view')) change.view = asked.get('view');
  drawSide();
  makeRows();
  choose(change);
  draw();
  document.body.dataset.ready = 'yes';
}

start();
