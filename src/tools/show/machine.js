// The machine: one host beside the other, each with its GPUs, switches and NICs; networks below.
const places = [];  // per node: {x, y} in units of the drawing
const boxes = [];   // per host: {x, y, w, h, host}
let world = {w: 1, h: 1};

function spread(nodes, x0, x1, y) {
  nodes.forEach((n, i) => { places[n] = {x: x0 + (x1 - x0) * (i + 0.5) / nodes.length, y}; });
}

// Sorts devices by the nodes they connect to, for few crossings.
function sortByNeighbours(nodes) {
  const middle = n => {
    const xs = data.links.filter(l => l[0] === n && places[l[1]]).map(l => places[l[1]].x);
    return xs.reduce((a, b) => a + b, 0) / Math.max(1, xs.length);
  };
  return nodes.map(n => [middle(n), n]).sort((a, b) => a[0] - b[0] || a[1] - b[1]).map(([, n]) => n);
}

// Without CPUs, GPUs sit round their switches. With CPUs it is a tree: CPUs, switches, devices.
function layHost(nodes, x, y, w, h) {
  const of = type => nodes.filter(n => data.nodes[n].type === type);
  const gpus = of('gpu'), nics = of('nic'), switches = of('switch'), cpus = of('cpu');
  if (cpus.length) {
    spread(cpus, x, x + w, y + h * 0.16);
    cpus.forEach((n, i) => { places[n].y += cpus.length > 2 ? (i % 2 ? 0.05 : -0.05) * h : 0; });
    spread(sortByNeighbours(switches), x, x + w, y + h * 0.42);
    spread(gpus, x, x + w, y + h * 0.68);
    spread(sortByNeighbours(nics), x, x + w, y + h * 0.9);
    return;
  }
  const low = nics.length ? 0.78 : 0.94, mid = y + h * (0.06 + low) / 2;
  gpus.forEach((n, i) => {
    const angle = 2 * Math.PI * (i + 0.5) / gpus.length - Math.PI / 2;
    places[n] = {x: x + w / 2 + Math.cos(angle) * w * 0.41, y: mid + Math.sin(angle) * h * (low - 0.06) * 0.43};
  });
  spread(switches, x + w * 0.25, x + w * 0.75, mid);
  spread(sortByNeighbours(nics), x + w * 0.04, x + w * 0.96, y + h * 0.93);
}

function layMachine() {
  const hosts = new Map(), networks = [];
  data.nodes.forEach((node, i) => {
    if (node.host < 0) networks.push(i);
    else hosts.set(node.host, [...(hosts.get(node.host) || []), i]);
  });
  const columns = Math.max(1, Math.ceil(Math.sqrt(hosts.size * 1.6))), w = 330, h = 250, gap = 26;
  let slot = 0;
  for (const [host, nodes] of hosts) {
    const x = (slot % columns) * (w + gap), y = Math.floor(slot / columns) * (h + gap);
    boxes.push({x, y, w, h, host});
    layHost(nodes, x, y, w, h);
    slot++;
  }
  const rows = Math.ceil(hosts.size / columns), used = Math.min(columns, hosts.size);
  world = {w: used * (w + gap) - gap, h: rows * (h + gap) - gap + (networks.length ? 70 : 0)};
  spread(networks, world.w * 0.1, world.w * 0.9, world.h - 24);
}

function view(width, height) {
  const scale = Math.min((width - 24) / world.w, (height - 20) / world.h);
  const dx = (width - world.w * scale) / 2, dy = (height - world.h * scale) / 2;
  return {scale, at: n => ({x: dx + places[n].x * scale, y: dy + places[n].y * scale}), dx, dy};
}

// The ends of a link, shifted a little so that both directions are visible.
function ends(v, link) {
  const a = v.at(data.links[link][0]), b = v.at(data.links[link][1]);
  const length = Math.hypot(b.x - a.x, b.y - a.y) || 1, aside = Math.max(1.2, 2.4 * v.scale);
  const ox = -(b.y - a.y) / length * aside, oy = (b.x - a.x) / length * aside;
  return [{x: a.x + ox, y: a.y + oy}, {x: b.x + ox, y: b.y + oy}];
}

function drawMachine() {
  const {c, width, height} = canvasOf('machine'), v = view(width, height);
  const size = Math.max(6, Math.min(17, 15 * v.scale));
  c.font = `${Math.max(8, Math.min(12, 11 * v.scale))}px system-ui, "Liberation Sans", sans-serif`;
  c.textAlign = 'center';
  c.textBaseline = 'middle';
  for (const box of boxes) {
    c.strokeStyle = css('--line');
    c.lineWidth = 1;
    c.beginPath();
    c.roundRect(v.dx + box.x * v.scale, v.dy + box.y * v.scale, box.w * v.scale, box.h * v.scale, 8);
    c.stroke();
    c.fillStyle = css('--soft');
    if (boxes.length > 1) c.fillText(`host ${box.host}`, v.dx + (box.x + 26) * v.scale, v.dy + (box.y + 12) * v.scale);
  }
  const most = Math.max(...data.links.map(l => l[2]));
  data.links.forEach((link, l) => {
    const [a, b] = ends(v, l), use = link[4], route = state.piece >= 0 && byLink[l].some(t => carries(data.transfers[t][1], state.piece));
    c.globalAlpha = state.piece >= 0 ? (route ? 1 : 0.12) : 0.3 + 0.7 * Math.min(1, use);
    c.strokeStyle = route ? colour(state.piece, 45) : use > 0 ? `hsl(${40 - 36 * Math.min(1, use)} ${30 + 55 * use}% ${64 - 16 * use}%)` : css('--line');
    c.lineWidth = (route ? 1.6 : 0.8) + 2 * Math.sqrt(link[2] / most);
    c.beginPath();
    c.moveTo(a.x, a.y);
    c.lineTo(b.x, b.y);
    c.stroke();
  });
  c.globalAlpha = 1;
  let under = 0;
  data.links.forEach((link, l) => {
    const t = onLink(l, state.now);
    if (t < 0) return;
    const [, span, , begin, end] = data.transfers[t];
    const mine = state.piece < 0 || carries(span, state.piece);
    under += mine ? 1 : 0;
    const [a, b] = ends(v, l), part = (state.now - begin) / Math.max(1, end - begin);
    c.globalAlpha = mine ? 1 : 0.15;
    c.fillStyle = colour(stepOf(span)[3], 48);
    c.strokeStyle = css('--panel');
    c.lineWidth = 1.5;
    c.beginPath();
    c.arc(a.x + (b.x - a.x) * part, a.y + (b.y - a.y) * part, size * 0.42, 0, 7);
    c.fill();
    c.stroke();
  });
  c.globalAlpha = 1;
  document.body.dataset.underWay = under;
  const fills = {gpu: '--gpu', switch: '--switch', nic: '--nic', cpu: '--cpu'};
  data.nodes.forEach((node, n) => {
    const p = v.at(n), text = node.type === 'gpu' ? `${node.rank}` : node.id.replace(/^h\d+\./, '');
    const half = node.type === 'gpu' ? size : Math.max(size * 1.1, c.measureText(text).width / 2 + 4);
    const tall = node.type === 'gpu' ? size : size * 0.62;
    c.fillStyle = css(fills[node.type]);
    c.beginPath();
    c.roundRect(p.x - half, p.y - tall, 2 * half, 2 * tall, node.type === 'gpu' ? size : 4);
    c.fill();
    if (node.type === 'gpu' && node.rank === state.rank) {
      c.strokeStyle = css('--accent');
      c.lineWidth = 3;
      c.stroke();
    }
    c.fillStyle = node.type === 'gpu' ? css('--gpu-ink') : '#15181c';
    c.fillText(text, p.x, p.y + 0.5);
  });
}

function nearest(event) {
  const canvas = $('machine'), box = canvas.getBoundingClientRect(), v = view(canvas.clientWidth, canvas.clientHeight);
  const x = event.clientX - box.left, y = event.clientY - box.top;
  let best = {distance: 16};
  data.nodes.forEach((node, n) => {
    const p = v.at(n), distance = Math.hypot(p.x - x, p.y - y);
    if (distance < best.distance) best = {distance, node: n};
  });
  if (best.node !== undefined) return best;
  best = {distance: 7};
  data.links.forEach((link, l) => {
    const [a, b] = ends(v, l), ll = (b.x - a.x) ** 2 + (b.y - a.y) ** 2 || 1;
    const part = Math.max(0, Math.min(1, ((x - a.x) * (b.x - a.x) + (y - a.y) * (b.y - a.y)) / ll));
    const distance = Math.hypot(a.x + (b.x - a.x) * part - x, a.y + (b.y - a.y) * part - y);
    if (distance < best.distance) best = {distance, link: l};
  });
  return best;
}

$('machine').addEventListener('mousemove', event => {
  const hit = nearest(event);
  if (hit.node !== undefined) {
    const node = data.nodes[hit.node];
    tip(event, `${node.id}${node.type === 'gpu' ? `, rank ${node.rank}` : `, ${node.type}`}`);
  } else if (hit.link !== undefined) {
    const [, , gbps, us, use] = data.links[hit.link];
    tip(event, `${linkName(hit.link)}\n${gbps} GB/s, ${us} µs\nbusy ${(100 * use).toFixed(1)}% of the time`);
  } else {
    tip(event, '');
  }
});
$('machine').addEventListener('mouseleave', event => tip(event, ''));
$('machine').addEventListener('click', event => {
  const hit = nearest(event);
  const rank = hit.node !== undefined && data.nodes[hit.node].type === 'gpu' ? data.nodes[hit.node].rank : -1;
  choose({rank: rank === state.rank ? -1 : rank, view: rank >= 0 ? 'lanes' : state.view});
});
