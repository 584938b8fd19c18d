// Draws a verified tree: depth runs to the right, the accepted path is the first row and ends in
// the bonus, rejected branches hang below.

const SVG = 'http://www.w3.org/2000/svg';
const MAX_LABEL = 14;  // characters
const ROOMY = {row: 26, box: 20, font: 12};
const DENSE = {row: 17, box: 14, font: 10.5};
const ROOMY_ROWS = 14;
const COLUMN_GAP = 22;
const CORNER = 5;
const MARGIN = 4;
const FRAME = 14;  // around the drawing, both sides together
const MAX_SCALE = 1.6;
const ORDER = {accepted: 0, bonus: 1, rejected: 2};  // order of siblings, from above

export function drawTree(element, pass) {
  const nodes = layOut(pass);
  const rows = 1 + Math.max(...nodes.map((node) => node.row));
  const size = rows <= ROOMY_ROWS ? ROOMY : DENSE;
  const width = placeColumns(nodes, size);
  const height = rows * size.row + 2 * MARGIN;

  const scale = scaleFor(element, width, height);
  const svg = make('svg', {
    width: width * scale,
    height: height * scale,
    viewBox: `0 0 ${width} ${height}`,
    role: 'img',
  });
  svg.setAttribute('aria-label', describe(nodes));
  svg.style.fontSize = `${size.font}px`;
  // Rejected edges first: the accepted path lies on top.
  const edges = nodes.filter((node) => node.parent).sort((a, b) => ORDER[b.kind] - ORDER[a.kind]);
  svg.append(...edges.map(drawEdge), ...nodes.map((node) => drawNode(node, size)));
  element.replaceChildren(svg);
}

// A small tree is drawn larger, as far as there is room.
function scaleFor(element, width, height) {
  const room = Math.min(
      (element.clientWidth - FRAME) / width, (element.clientHeight - FRAME) / height);
  return Math.min(Math.max(room, 1), MAX_SCALE);
}

// Nodes with kind, depth and row. Each leaf has a row of its own, shared with the ancestors whose
// first leaf it is.
function layOut({tree, bonus}) {
  const accepted = new Set(tree.accepted);
  const nodes = tree.tokens.map((id, index) => ({
    label: labelOf(tree.texts[index], id),
    kind: index === 0 ? 'root' : accepted.has(index) ? 'accepted' : 'rejected',
    parent: null,
    children: [],
  }));
  nodes.slice(1).forEach((node, index) => adopt(nodes[tree.parents[index + 1]], node));
  if (bonus) {
    const node = {label: labelOf(bonus.text, bonus.id), kind: 'bonus', children: []};
    adopt(nodes[tree.accepted.at(-1) ?? 0], node);
    nodes.push(node);
  }
  placeRows(nodes[0], 0, 0);
  return nodes;
}

function adopt(parent, node) {
  node.parent = parent;
  parent.children.push(node);
}

// Returns the first row that is free below.
function placeRows(node, depth, row) {
  node.depth = depth;
  node.row = row;
  node.children.sort((a, b) => ORDER[a.kind] - ORDER[b.kind]);
  let next = row;
  for (const child of node.children) next = placeRows(child, depth + 1, next);
  return Math.max(next, row + 1);
}

// Gives each node its x, y and width; a column is as wide as its widest label. Returns the width
// of all.
function placeColumns(nodes, size) {
  const columns = [];
  for (const node of nodes) {
    node.width = textWidth(node.label) * size.font + size.font;
    columns[node.depth] = Math.max(columns[node.depth] ?? 0, node.width);
  }
  const starts = [MARGIN];
  columns.forEach((width, depth) => starts.push(starts[depth] + width + COLUMN_GAP));
  for (const node of nodes) {
    node.x = starts[node.depth];
    node.y = MARGIN + (node.row + 0.5) * size.row;
  }
  return Math.ceil(starts.at(-1) - COLUMN_GAP + MARGIN);
}

// Children hang on one trunk that runs down in the gap before their column.
function drawEdge(node) {
  const {x, y, parent} = node;
  const start = `M${parent.x + parent.width} ${parent.y}`;
  const trunk = x - COLUMN_GAP / 2;
  const d = node.row === parent.row ? `${start}H${x}` :
      `${start}H${trunk}V${y - CORNER}q0 ${CORNER} ${CORNER} ${CORNER}H${x}`;
  return make('path', {d, class: `edge ${node.kind}`});
}

function drawNode(node, size) {
  const group = make('g', {class: `node ${node.kind}`});
  const y = node.y - size.box / 2;
  group.append(make('rect', {x: node.x, y, width: node.width, height: size.box, rx: size.box / 3}));
  const text = make('text', {x: node.x + node.width / 2, y: node.y, dy: '0.35em'});
  text.textContent = node.label;
  group.append(text);
  return group;
}

function describe(nodes) {
  const path = nodes.filter((node) => node.kind === 'accepted').map((node) => node.label);
  const drafted = nodes.filter((node) => node.kind === 'accepted' || node.kind === 'rejected');
  return `${drafted.length} drafted tokens, ${path.length} accepted: ${path.join(' ') || 'none'}`;
}

// What cannot be seen becomes visible; what is long is cut.
function labelOf(text, id) {
  if (!text) return `#${id}`;
  const visible = text.replace(/ /g, '·').replace(/\n/g, '⏎').replace(/\t/g, '⇥');
  const characters = [...visible];
  if (characters.length <= MAX_LABEL) return visible;
  return `${characters.slice(0, MAX_LABEL - 1).join('')}…`;
}

// In ems of the monospaced face; East Asian characters are about twice as wide.
function textWidth(label) {
  return [...label].reduce((sum, char) => sum + (char.codePointAt(0) >= 0x1100 ? 1.1 : 0.61), 0);
}

function make(name, attributes) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}
