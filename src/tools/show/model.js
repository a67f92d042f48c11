// The data of the page, and queries on it. Times are whole nanoseconds.
'use strict';
window.onerror = message => { document.body.dataset.error = message; };
const data = JSON.parse(document.getElementById('data').textContent);
const $ = id => document.getElementById(id);
const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// Steps: [lane, number in its lane, text, first piece, pieces]. A span is one step on one slice.
const stepOf = span => data.steps[span % data.steps.length];
const laneOf = span => data.lanes[stepOf(span)[0]];
const hue = piece => (piece * 137.508) % 360;
const colour = (piece, light) => piece < 0 ? `hsl(0 0% ${light}%)` : `hsl(${hue(piece)} 62% ${light}%)`;
const carries = (span, piece) => stepOf(span)[3] >= 0 && piece >= stepOf(span)[3] && piece < stepOf(span)[3] + stepOf(span)[4];
const critical = new Set(data.critical);
const nodeName = i => data.nodes[i].id;
const linkName = l => `${nodeName(data.links[l][0])} → ${nodeName(data.links[l][1])}`;

function time(ns) {
  if (ns < 1e6) return `${(ns / 1e3).toFixed(ns < 1e5 ? 2 : 1)} µs`;
  return `${(ns / 1e6).toFixed(ns < 1e7 ? 3 : 2)} ms`;
}

function pieceName(piece) {
  const n = data.ranks, c = data.chunks;
  const part = c > 1 ? `, chunk ${piece % c}` : '';
  switch (data.collective) {
    case 'all_gather': case 'gather': return `of rank ${Math.floor(piece / c)}${part}`;
    case 'reduce_scatter': case 'scatter': return `for rank ${Math.floor(piece / c)}${part}`;
    case 'alltoall': return `rank ${Math.floor(piece / (n * c))} to rank ${Math.floor(piece / c) % n}${part}`;
    default: return `${piece}`;
  }
}

// Transfers by link and spans by lane, each sorted by time.
const byLink = data.links.map(() => []);
data.transfers.forEach((t, i) => byLink[t[0]].push(i));  // [link, span, destination, begin, end]
const byLane = data.lanes.map(() => []);
data.spans.forEach((s, i) => byLane[stepOf(i)[0]].push(i));  // [begin, end, cause]
byLane.forEach(row => row.sort((a, b) => data.spans[a][0] - data.spans[b][0]));

// The transfer on a link at a time: binary search in its row.
function onLink(link, ns) {
  const row = byLink[link];
  let low = 0, high = row.length;
  while (low < high) {
    const mid = (low + high) >> 1;
    if (data.transfers[row[mid]][3] <= ns) low = mid + 1; else high = mid;
  }
  const t = low > 0 ? row[low - 1] : -1;
  return t >= 0 && data.transfers[t][4] > ns ? t : -1;
}

const state = {now: 0, piece: -1, view: 'links', rank: -1, only: false, from: 0, to: Math.max(1, data.time), playing: false};

// The canvas, resized to its size on the page.
function canvasOf(id) {
  const canvas = $(id), ratio = window.devicePixelRatio || 1;
  const width = canvas.clientWidth, height = canvas.clientHeight;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  const c = canvas.getContext('2d');
  c.setTransform(ratio, 0, 0, ratio, 0, 0);
  c.clearRect(0, 0, width, height);
  return {c, width, height};
}

function tip(event, text) {
  const box = $('tip');
  box.hidden = !text;
  if (!text) return;
  box.textContent = text;
  box.style.left = `${Math.min(event.clientX + 14, window.innerWidth - box.offsetWidth - 8)}px`;
  box.style.top = `${Math.min(event.clientY + 14, window.innerHeight - box.offsetHeight - 8)}px`;
}
