// A layered layout, top to bottom: ranks by longest path, few crossings, straight edges where there is room.
//
// `layout(scope, measure)` gives {width, height, nodes, edges} with nodes {node, x, y, width, height, inner} (top left
// corners; `inner` is the layout of a body, placed at `inner.x`, `inner.y` within the node) and edges {edge, points}.
// `measure(node)` gives the size of a node that has no body, or the least size and the header of one that has.

const GAP = 24; // between neighbours of a rank
const RANK_GAP = 34; // between ranks
const PAD = 16; // within loops and around everything
const LANE = 14; // between edges that lead back
const TURN = 9; // above or below a rank, where such edges run across
const SWEEPS = 8;

/** Place everything of a scope, bodies of loops first. */
export function layout(scope, measure) {
  const boxes = new Map(scope.nodes.map((node) => [node.id, boxOf(node, measure)]));
  const forward = scope.edges.filter((edge) => !edge.back && boxes.has(edge.from) && boxes.has(edge.to));
  const ranks = ranked(scope.nodes, forward);
  const { layers, chains } = layered(boxes, forward, ranks);
  order(layers);
  place(layers);
  const edges = chains.map(({ edge, boxes: chain }) => ({ edge, points: through(chain) }));
  return framed([...boxes.values()], edges, backEdges(scope, boxes));
}

function boxOf(node, measure) {
  const size = measure(node);
  if (!node.body) return { node, ...size, above: [], below: [] };
  const inner = layout(node.body, measure);
  const width = Math.max(size.width, inner.width);
  inner.x = (width - inner.width) / 2;
  inner.y = size.height;
  return { node, width, height: size.height + inner.height, inner, above: [], below: [] };
}

/** Rank of each node by id: the longest way to it, then down to just above its first reader. */
function ranked(nodes, edges) {
  const ranks = new Map(nodes.map(({ id }) => [id, 0]));
  for (let moved = true, left = nodes.length; moved && left >= 0; left -= 1) {
    moved = false;
    for (const { from, to } of edges) {
      if (ranks.get(to) > ranks.get(from)) continue;
      ranks.set(to, ranks.get(from) + 1);
      moved = true;
    }
  }
  const order = [...nodes].sort((a, b) => ranks.get(b.id) - ranks.get(a.id));
  for (const { id } of order) {
    const readers = edges.filter(({ from }) => from === id).map(({ to }) => ranks.get(to));
    if (readers.length > 0) ranks.set(id, Math.min(...readers) - 1);
  }
  return ranks;
}

/** Boxes by rank, with a small stand-in in every rank that an edge passes. */
function layered(boxes, edges, ranks) {
  const layers = Array.from({ length: Math.max(0, ...ranks.values()) + 1 }, () => []);
  for (const [id, box] of boxes) layers[ranks.get(id)].push(box);
  const chains = edges.map((edge) => {
    const chain = [boxes.get(edge.from)];
    for (let rank = ranks.get(edge.from) + 1; rank < ranks.get(edge.to); rank += 1) {
      const passing = { node: null, width: 8, height: 0, above: [], below: [] };
      layers[rank].push(passing);
      chain.push(passing);
    }
    chain.push(boxes.get(edge.to));
    for (let index = 1; index < chain.length; index += 1) {
      chain[index - 1].below.push(chain[index]);
      chain[index].above.push(chain[index - 1]);
    }
    return { edge, boxes: chain };
  });
  return { layers: layers.filter((layer) => layer.length > 0), chains };
}

/** Fewer crossings: every rank by the mean place of its neighbours in the last one, down and up again. */
function order(layers) {
  const number = (layer) => layer.forEach((box, index) => (box.order = index));
  layers.forEach(number);
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const down = sweep % 2 === 0;
    for (const layer of down ? layers : [...layers].reverse()) {
      const place = (box) => mean((down ? box.above : box.below).map((other) => other.order)) ?? box.order;
      const wanted = new Map(layer.map((box) => [box, place(box)]));
      layer.sort((a, b) => wanted.get(a) - wanted.get(b) || a.order - b.order);
      number(layer);
    }
  }
}

/** Coordinates: ranks below each other; within one, boxes under their neighbours as far as there is room. */
function place(layers) {
  let top = 0;
  for (const layer of layers) {
    const height = Math.max(...layer.map((box) => box.height));
    let left = 0;
    for (const box of layer) {
      if (box.node === null) box.height = height; // straight past a tall neighbour
      box.y = top + (height - box.height) / 2;
      box.rank = { top, bottom: top + height };
      box.x = left;
      left += box.width + GAP;
    }
    top += height + RANK_GAP;
  }
  for (let sweep = 0; sweep <= 2 * SWEEPS; sweep += 1) {
    if (sweep % 2 === 0) for (const layer of layers) pull(layer, "above");
    else for (const layer of [...layers].reverse()) pull(layer, "below");
  }
}

/** Move the boxes of a rank to where their neighbours on one side are, without changing their order. */
function pull(layer, side) {
  const wanted = layer.map((box) => (mean(box[side].map(middle)) ?? middle(box)) - box.width / 2);
  const groups = []; // boxes that touch move together, to the mean of what they want
  layer.forEach((box, index) => {
    let group = { boxes: [box], sum: wanted[index], width: box.width };
    group.x = group.sum;
    for (let last = groups.at(-1); last && last.x + last.width + GAP > group.x; last = groups.at(-1)) {
      groups.pop();
      const shift = last.width + GAP;
      group = {
        boxes: [...last.boxes, ...group.boxes],
        sum: last.sum + group.sum - shift * group.boxes.length,
        width: shift + group.width,
      };
      group.x = group.sum / group.boxes.length;
    }
    groups.push(group);
  });
  for (const group of groups) {
    let left = group.x;
    for (const box of group.boxes) {
      box.x = left;
      left += box.width + GAP;
    }
  }
}

const middle = (box) => box.x + box.width / 2;
const mean = (numbers) => (numbers.length ? numbers.reduce((sum, n) => sum + n, 0) / numbers.length : null);

/** From the lower side of the first box, past the ranks between, to the upper side of the last. */
function through(chain) {
  const [first, last] = [chain[0], chain.at(-1)];
  return [
    ...down(middle(first), first.y + first.height, first.rank.bottom),
    ...chain.slice(1, -1).flatMap((box) => down(middle(box), box.rank.top, box.rank.bottom)),
    ...down(middle(last), last.rank.top, last.y),
  ];
}

const down = (x, from, to) => (to > from ? [[x, from], [x, to]] : [[x, from]]);

/** Edges that lead back: out at the bottom, up a lane of their own to the right of everything, in from the top. */
function backEdges(scope, boxes) {
  let lane = Math.max(0, ...[...boxes.values()].map((box) => box.x + box.width)) + LANE;
  return scope.edges
    .filter((edge) => edge.back && boxes.has(edge.from) && boxes.has(edge.to))
    .map((edge, index) => {
      const [from, to] = [boxes.get(edge.from), boxes.get(edge.to)];
      const [below, above] = [from.rank.bottom + TURN + 4 * index, to.rank.top - TURN - 4 * index];
      const [start, end] = [middle(from) + from.width / 4, middle(to) + to.width / 4];
      const out = [[start, from.y + from.height], [start, below], [lane, below]];
      const back = [[lane, above], [end, above], [end, to.y]];
      lane += LANE;
      return { edge, points: [...out, ...back] };
    });
}

/** Everything moved so that it begins at the padding. */
function framed(boxes, edges, back) {
  const all = [...edges, ...back];
  const points = all.flatMap((edge) => edge.points);
  const corners = boxes.flatMap((box) => [[box.x, box.y], [box.x + box.width, box.y + box.height]]);
  const [xs, ys] = [0, 1].map((axis) => [...points, ...corners].map((point) => point[axis]));
  const [left, top] = [Math.min(...xs) - PAD, Math.min(...ys) - PAD];
  for (const box of boxes) {
    box.x -= left;
    box.y -= top;
  }
  return {
    width: boxes.length ? Math.max(...xs) + PAD - left : 2 * PAD,
    height: boxes.length ? Math.max(...ys) + PAD - top : 2 * PAD,
    nodes: boxes,
    edges: all.map(({ edge, points: line }) => ({ edge, points: line.map(([x, y]) => [x - left, y - top]) })),
  };
}
