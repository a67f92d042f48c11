// The timeline: a row per link or per lane (of a selected chunk, only those it uses). Draws only
// the visible part. Drag scrubs, the wheel zooms, shift and wheel move.
const kLabel = 168;
let rows = [];  // {label, items, link or lane, gap}

function makeRows() {
  if (state.view === 'links') {
    rows = data.links.map((link, l) => ({label: linkName(l), items: byLink[l], link: l, use: link[4]}));
    rows = rows.filter(row => row.items.length && (state.rank < 0 ||
        [data.links[row.link][0], data.links[row.link][1]].some(n => data.nodes[n].rank === state.rank)));
    rows.sort((a, b) => b.use - a.use || a.link - b.link);
  } else {
    rows = data.lanes.map(([rank, lane], l) => ({label: `rank ${rank} lane ${lane}`, items: byLane[l], lane: l, rank}));
    rows = rows.filter(row => row.items.length && (state.rank < 0 || row.rank === state.rank));
  }
  const spanOf = row => row.link === undefined ? item => item : item => data.transfers[item][1];
  if (state.piece >= 0) rows = rows.filter(row => row.items.map(spanOf(row)).some(span => carries(span, state.piece)));
  const height = rowHeight();
  $('tall').style.height = `${rows.length * height}px`;
  document.body.dataset.rows = rows.length;
}

const rowHeight = () => rows.length > 60 ? 13 : 18;
const xOf = (ns, width) => kLabel + (ns - state.from) / (state.to - state.from) * (width - kLabel);
const nsOf = (x, width) => state.from + (x - kLabel) / (width - kLabel) * (state.to - state.from);

// [begin, end, span] of an item.
function bounds(row, item) {
  if (row.link !== undefined) return [data.transfers[item][3], data.transfers[item][4], data.transfers[item][1]];
  return [data.spans[item][0], data.spans[item][1], item];
}

function drawRuler() {
  const {c, width} = canvasOf('ruler');
  const wanted = (state.to - state.from) / Math.max(2, (width - kLabel) / 110);
  const power = 10 ** Math.floor(Math.log10(wanted)), tick = [1, 2, 5, 10].map(f => f * power).find(t => t >= wanted);
  c.font = '11px system-ui, "Liberation Sans", sans-serif';
  c.fillStyle = c.strokeStyle = css('--soft');
  c.textAlign = 'left';
  for (let at = Math.ceil(state.from / tick) * tick; at <= state.to; at += tick) {
    const x = xOf(at, width);
    c.fillRect(x, 12, 1, 6);
    if (x < width - 50) c.fillText(time(at), x + 3, 11);
  }
}

function drawTimeline() {
  $('timeline').style.height = `${$('scroll').clientHeight}px`;
  const {c, width, height} = canvasOf('timeline'), step = rowHeight(), top = $('scroll').scrollTop;
  const first = Math.floor(top / step), last = Math.min(rows.length, Math.ceil((top + height) / step));
  c.font = `${step > 14 ? 11.5 : 10.5}px system-ui, "Liberation Sans", sans-serif`;
  c.textBaseline = 'middle';
  const dark = matchMedia('(prefers-color-scheme: dark)').matches;
  for (let r = first; r < last; r++) {
    const row = rows[r], y = r * step - top;
    c.fillStyle = css('--soft');
    c.textAlign = 'right';
    c.fillText(row.label, kLabel - 8, y + step / 2, kLabel - 12);
    c.fillStyle = css('--node');
    c.fillRect(kLabel, y + step - 1, width - kLabel, 1);
    c.save();
    c.beginPath();
    c.rect(kLabel, y, width - kLabel, step);
    c.clip();
    let covered = -1;  // last pixel column drawn: items below one pixel merge
    for (const item of row.items) {
      const [begin, end, span] = bounds(row, item);
      if (end < state.from || begin > state.to) continue;
      const x = xOf(begin, width), w = Math.max(0.8, xOf(end, width) - x), isCritical = critical.has(span);
      if (x + w < covered + 0.5 && !isCritical) continue;
      covered = x + w;
      const dim = (state.piece >= 0 && !carries(span, state.piece)) || (state.only && !isCritical);
      c.globalAlpha = dim ? 0.1 : 1;
      c.fillStyle = colour(stepOf(span)[3], dark ? 56 : 60);
      c.fillRect(x, y + 1, w, step - 3);
      if (isCritical && !dim) {
        c.fillStyle = css('--accent');
        c.fillRect(x, y + step - 4, w, 2);
      }
      if (w > 60) {
        c.fillStyle = '#15181c';
        c.textAlign = 'left';
        c.fillText(row.link === undefined ? stepOf(span)[2] : `r${laneOf(span)[0]} → r${data.transfers[item][2]}`, Math.max(x, kLabel) + 4, y + step / 2, w - 6);
      }
    }
    c.restore();
  }
  const x = xOf(state.now, width);
  if (x >= kLabel) {
    c.fillStyle = css('--accent');
    c.fillRect(x - 0.75, 0, 1.5, height);
  }
}

function itemAt(event) {
  const box = $('timeline').getBoundingClientRect(), width = $('timeline').clientWidth;
  const row = rows[Math.floor((event.clientY - box.top + $('scroll').scrollTop) / rowHeight())];
  if (!row || event.clientX - box.left < kLabel) return row ? {row} : null;
  const slack = (state.to - state.from) / width * 2, ns = nsOf(event.clientX - box.left, width);
  const item = row.items.find(i => bounds(row, i)[0] <= ns + slack && bounds(row, i)[1] >= ns - slack);
  return {row, item};
}

function seekTo(event) {
  const box = $('timeline').getBoundingClientRect();
  choose({now: nsOf(Math.max(kLabel, event.clientX - box.left), $('timeline').clientWidth)});
}

$('timeline').addEventListener('pointerdown', event => {
  $('timeline').setPointerCapture(event.pointerId);
  seekTo(event);
});
$('timeline').addEventListener('pointermove', event => {
  if (event.buttons & 1) seekTo(event);
  const hit = itemAt(event);
  if (!hit || hit.item === undefined) return tip(event, hit && hit.row ? hit.row.label : '');
  const [begin, end, span] = bounds(hit.row, hit.item), step = stepOf(span), [rank, lane] = laneOf(span);
  tip(event, `rank ${rank} lane ${lane} step ${step[1]}${data.slices > 1 ? `, slice ${Math.floor(span / data.steps.length)}` : ''}\n` +
      `${step[2]}\n${step[3] >= 0 ? `chunk ${pieceName(step[3])}${step[4] > 1 ? ` and ${step[4] - 1} more` : ''}\n` : ''}` +
      `${time(begin)} to ${time(end)}, ${time(end - begin)}${critical.has(span) ? '\non the critical path' : ''}`);
});
$('timeline').addEventListener('pointerleave', event => tip(event, ''));
$('timeline').addEventListener('dblclick', () => choose({from: 0, to: data.time}));
$('timeline').addEventListener('wheel', event => {
  const width = $('timeline').clientWidth, span = state.to - state.from;
  const sideways = event.shiftKey ? event.deltaY : event.deltaX;
  if (event.ctrlKey || event.altKey || (!sideways && rows.length * rowHeight() <= $('scroll').clientHeight)) {
    const at = nsOf(event.clientX - $('timeline').getBoundingClientRect().left, width);
    const size = Math.max(10, Math.min(data.time, span * Math.exp(event.deltaY * 0.002)));
    const from = Math.max(0, Math.min(data.time - size, at - (at - state.from) * size / span));
    choose({from, to: from + size});
  } else if (sideways) {
    const from = Math.max(0, Math.min(data.time - span, state.from + sideways / width * span));
    choose({from, to: from + span});
  } else {
    return;  // the page scrolls the rows
  }
  event.preventDefault();
}, {passive: false});
$('scroll').addEventListener('scroll', () => requestAnimationFrame(drawTimeline));
