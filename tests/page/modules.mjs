// Tests of the page's modules by themselves, in a page of the server.

import assert from 'node:assert/strict';

// Runs in the page.
async function splitCases() {
  const {splitByToken} = await import('/answer.js');
  const draft = (text) => ({text, drafted: true});
  const bonus = (text) => ({text, drafted: false});
  return [
    splitByToken(' a b', [draft(' a'), bonus(' b')]),
    splitByToken('é', [draft(''), bonus('é')]),
    splitByToken('é!', [bonus('\ufffd')]),
    splitByToken(' a', [draft(' a'), bonus('<end>')]),
    splitByToken('', [bonus(' held back')]),
  ];
}

export async function testSplitByToken(page) {
  assert.deepEqual(await page.evaluate(splitCases), [
    [{text: ' a', origin: 'draft'}, {text: ' b', origin: 'bonus'}],
    [{text: 'é', origin: 'bonus'}],
    [{text: 'é!', origin: 'unknown'}],
    [{text: ' a', origin: 'draft'}],
    [],
  ]);
}

// Runs in the page: 120 tokens that took 300 ms and reach a busy browser within one.
async function rateOfBurst() {
  const {Run} = await import('/run.js');
  const token = {id: 1, text: '', drafted: false};
  const event = (count) => ({talon: {tokens: Array(count).fill(token)}});
  const run = new Run(1000);
  run.add(event(2), 1299);
  run.add(event(118), 1300);
  return run.tokensPerSecond();
}

export async function testBurstDoesNotInflateTheRate(page) {
  assert.equal(await page.evaluate(rateOfBurst), 400);
}

// Runs in the page: the slider over a run of `count` passes; the tenth has the largest tree.
async function replayOf(count) {
  const {Run} = await import('/run.js');
  const {Replay} = await import('/replay.js');
  const make = (name) => document.createElement(name);
  const parts = {tree: make('div'), slider: make('input'), label: make('p'), largest: make('p')};
  parts.tree.append(make('p'));
  parts.slider.type = 'range';
  const replay = new Replay(parts);
  const run = new Run(0);
  replay.reset(run);
  for (let pass = 1; pass <= count; ++pass) {
    const nodes = Array(pass === 10 ? 5 : 2).fill(0).map((_, node) => node);
    const parents = nodes.map((node) => node - 1);
    const tree = {tokens: nodes, texts: nodes.map(String), parents, accepted: [0]};
    const tokens = [{id: 1, text: 'a', drafted: false}];
    run.add({talon: {tokens, tree, stats: {passes: pass, emitted: pass}}}, pass);
  }
  replay.finish();
  const end = parts.label.textContent;
  parts.slider.value = 1;
  replay.onInput();
  return {max: Number(parts.slider.max), end, first: parts.label.textContent};
}

export async function testAllPassesAreKept(page) {
  assert.deepEqual(
      await page.evaluate(replayOf, 5000), {max: 5000, end: '10 / 5000', first: '1 / 5000'});
}

// Runs in the page: draws a tree of `size` nodes, each with up to three children, and returns where
// its boxes and labels are.
async function drawBoxes(size) {
  const {drawTree} = await import('/tree.js');
  const parents = Array.from({length: size}, (_, node) => Math.ceil(node / 3) - 1);
  const texts = parents.map((_, node) => ` word${node}`.repeat(1 + node % 3));
  const accepted = size > 1 ? [0, Math.min(2, size - 1)] : [0];
  const tree = {tokens: parents.map((_, node) => node), texts, parents, accepted};
  const element = document.getElementById('tree');
  drawTree(element, {tree, bonus: {id: 1, text: '\n'}});
  return [...element.querySelectorAll('.node')].map((node) => {
    const {left, right, top, bottom} = node.querySelector('rect').getBoundingClientRect();
    const textWidth = node.querySelector('text').getBoundingClientRect().width;
    const font = parseFloat(getComputedStyle(node).fontSize);
    return {left, right, top, bottom, textWidth, font};
  });
}

function overlap(a, b) {
  return a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
}

export async function testTreeIsReadable(page) {
  for (const size of [1, 2, 3, 7, 16, 40, 64]) {
    const boxes = await page.evaluate(drawBoxes, size);
    assert.equal(boxes.length, size + 1);  // and the bonus
    for (const [index, box] of boxes.entries()) {
      assert.ok(box.textWidth <= box.right - box.left, `label ${index} of ${size} leaves its box`);
      assert.ok(box.font >= 10, `label ${index} of ${size} is too small`);
      const hit = boxes.findIndex((other, at) => at > index && overlap(box, other));
      assert.equal(hit, -1, `boxes ${index} and ${hit} of ${size} overlap`);
    }
  }
}

// Runs in the page: a call that comes in two parts, shown as the model wrote it.
async function callInParts() {
  const {Run} = await import('/run.js');
  const {callsText} = await import('/tools.js');
  const token = (text, drafted) => ({id: 1, text, drafted});
  const event = (part, tokens) => ({choices: [{delta: {tool_calls: [part]}}], talon: {tokens}});
  const run = new Run(0, true);
  run.add(event({index: 0, id: 'a', function: {name: 'f', arguments: ''}}, [token('<f', true)]), 1);
  run.add(event({index: 0, function: {arguments: '{}'}}, [token('{}', false)]), 2);
  return {text: run.text, calls: callsText(run.calls), pieces: run.takePieces()};
}

export async function testToolCalls(page) {
  assert.deepEqual(await page.evaluate(callInParts), {
    text: '',
    calls: 'f({})',
    pieces: [{text: '<f', origin: 'draft'}, {text: '{}', origin: 'bonus'}],
  });
}
