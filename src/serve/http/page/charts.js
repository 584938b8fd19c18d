// The small instruments: acceptance by depth, tokens per pass, KV blocks.

const SPARK = {width: 300, height: 72, minPasses: 40, maxPasses: 120};

// accepted[d] of tried[d] passes were accepted at depth d + 1.
export function drawDepths(element, {accepted_at_depth: accepted, tried_at_depth: tried}) {
  const shares = [];
  tried.forEach((count, depth) => {
    if (count === 0) return;
    shares.push({depth: depth + 1, percent: Math.round(100 * accepted[depth] / count)});
  });
  element.replaceChildren(...shares.map(depthBar));
  element.setAttribute('aria-label', shares.length === 0 ? 'No drafts yet' :
      shares.map(({depth, percent}) => `depth ${depth}: ${percent} %`).join(', '));
}

function depthBar({depth, percent}) {
  const column = document.createElement('div');
  const bar = child(column, 'i', '');
  bar.style.height = `${percent}%`;
  bar.dataset.percent = percent;
  child(column, 'span', depth);
  return column;
}

// counts: tokens of each pass, the oldest first. tau is drawn as a dashed line.
export function drawSpark(element, counts, tau) {
  const shown = counts.slice(-SPARK.maxPasses);
  if (shown.length === 0) {
    element.replaceChildren();
    return;
  }
  const top = Math.max(4, ...shown);
  const yOf = (count) => round(SPARK.height * (1 - count / top));
  const step = SPARK.width / Math.max(SPARK.minPasses, shown.length);
  const line = shown.map((count, i) => `${round(i * step)} ${yOf(count)}H${round((i + 1) * step)}`);
  const path = `M${line.join('L')}`;
  const end = round(shown.length * step);
  const svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
  svg.setAttribute('viewBox', `0 0 ${SPARK.width} ${SPARK.height}`);
  svg.setAttribute('preserveAspectRatio', 'none');
  svg.append(
      shape('area', `${path}V${SPARK.height}H0Z`), shape('line', path),
      shape('mean', `M0 ${yOf(tau)}H${end}`));
  const scale = document.createElement('span');
  scale.textContent = top;
  element.replaceChildren(scale, svg);
  element.setAttribute('aria-label', `Last pass ${shown.at(-1)} tokens, mean ${tau.toFixed(2)}`);
}

function shape(name, d) {
  const path = document.createElementNS('http://www.w3.org/2000/svg', 'path');
  path.setAttribute('class', name);
  path.setAttribute('d', d);
  return path;
}

// A block is used by a sequence, cached (kept until its room is needed) or empty.
export function drawKv(element, {used, cached, empty}) {
  const all = used + cached + empty;
  // Few of many are seen too.
  const share = (count) => count > 0 ? `max(3px, ${100 * count / all}%)` : '0';
  element.querySelector('.used').style.width = share(used);
  element.querySelector('.cached').style.width = share(cached);
  element.setAttribute('aria-label', `${used} used, ${cached} cached, ${empty} empty`);
}

function child(parent, name, text) {
  const element = document.createElement(name);
  element.textContent = text;
  parent.append(element);
  return element;
}

function round(value) {
  return Math.round(10 * value) / 10;
}
