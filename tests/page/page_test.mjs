// The page at `/` in a real Chromium, against the real program with the bundled model.
//
// Usage: node page_test.mjs PATH_OF_TALON PATH_OF_CHROMIUM FOLDER
// FOLDER has playwright-core in its node_modules and gets the screenshots.

import assert from 'node:assert/strict';
import {mkdirSync, rmSync, symlinkSync, writeFileSync} from 'node:fs';
import {join} from 'node:path';
import {fileURLToPath} from 'node:url';
import {after, before, test} from 'node:test';

import {Browser, closeClean, generate, numberOf, textOf, waitForText} from './browser.mjs';
import {
  testAllPassesAreKept,
  testBurstDoesNotInflateTheRate,
  testSplitByToken,
  testToolCalls,
  testTreeIsReadable,
} from './modules.mjs';
import {Server} from './server.mjs';

const [program, chromium, folder] = process.argv.slice(2);
const repository = fileURLToPath(new URL('../..', import.meta.url));
const PROMPT = 'It was a dark night';
const LONG = 20000;  // tokens that no machine generates before the test stops them
// Speculation on whatever it costs on this machine: the trees are what is looked at.
const FLAGS =
    ['--speculative-algorithm', 'EAGLE3', '--speculative-adaptive', 'false', '--threads', '1'];

let server;
let browser;

before(async () => {
  server = await Server.start(program, ...FLAGS);
  browser = await Browser.start(chromium, folder);
});

after(async () => {
  await browser?.stop();
  await server?.stop();
});

const count = (page, selector) => page.locator(selector).count();

// The requests that the page sends from now on.
function bodiesOf(page) {
  const bodies = [];
  page.on('request', (request) => {
    if (request.method() === 'POST') bodies.push(request.postDataJSON());
  });
  return bodies;
}

async function setMaxTokens(page, value) {
  await page.locator('#max-tokens').fill(String(value));
}

test('the answer is the API\'s, coloured, with its numbers', async () => {
  const page = await browser.open(server.origin);
  await waitForText(page, '#server', 'idle');
  assert.match(await textOf(page, '#drafter'), /eagle3/i);
  await setMaxTokens(page, 60);
  await generate(page, PROMPT);
  await waitForText(page, '#progress', 'Done');

  const {choices, usage} = await server.post(
      '/v1/completions', {model: 'tiny', prompt: PROMPT, max_tokens: 60, temperature: 0});
  assert.equal(await page.locator('#answer').textContent(), PROMPT + choices[0].text);
  assert.equal(await numberOf(page, '#emitted'), usage.completion_tokens);
  assert.equal(await textOf(page, '#tau'), usage.spec.tau.toFixed(2));
  assert.equal(await numberOf(page, '#passes'), usage.spec.passes);
  assert.equal(await numberOf(page, '#prompt-tokens'), usage.prompt_tokens);
  assert.ok(await numberOf(page, '#rate') > 0);
  assert.ok(await count(page, '#answer .draft') > 0);
  assert.ok(await count(page, '#answer .bonus') > 0);
  assert.ok(await count(page, '#depths div') > 0);
  assert.equal(await count(page, '#spark path.line'), 1);
  await closeClean(page);
});

test('trees are drawn: the largest at the end, and every pass again', async () => {
  const page = await browser.open(server.origin);
  await generate(page, PROMPT);
  await waitForText(page, '#progress', 'Done');
  const drafted = async () => await count(page, '#tree .accepted.node') +
      await count(page, '#tree .rejected.node');
  const shown = await textOf(page, '#replay-at');
  const shownNodes = await drafted();
  const total = await numberOf(page, '#passes');
  assert.ok(total > 1);
  assert.equal(await count(page, '#tree .root'), 1);
  await page.locator('#replay').focus();
  await page.keyboard.press('Home');
  assert.equal(await textOf(page, '#replay-at'), `1 / ${total}`);
  let accepted = 0;
  let largest = 0;
  for (let pass = 1; pass <= total; ++pass) {
    assert.equal(await textOf(page, '#replay-at'), `${pass} / ${total}`);
    assert.ok(await count(page, '#tree .node') >= 2, `nodes of pass ${pass}`);
    accepted += await count(page, '#tree .node.accepted');
    largest = Math.max(largest, await drafted());
    await page.keyboard.press('ArrowRight');
  }
  assert.equal(accepted, await numberOf(page, '#accepted'));
  assert.equal(shownNodes, largest);
  await page.locator('#largest').click();
  assert.equal(await textOf(page, '#replay-at'), shown);
  await closeClean(page);
});

test('the speed-up is measured by the same request without speculation', async () => {
  const page = await browser.open(server.origin);
  const bodies = bodiesOf(page);
  assert.equal(await page.locator('#compare').isDisabled(), true);
  await setMaxTokens(page, 60);
  await page.locator('#temperature').fill('0.7');
  await generate(page, PROMPT);
  await waitForText(page, '#progress', 'Done');
  assert.equal(await textOf(page, '#speedup'), '–');
  await page.locator('#compare').click();
  await waitForText(page, '#compared', 'the same text');
  assert.match(await textOf(page, '#speedup'), /^\d+\.\d\d×$/);
  const [asked, plain] = bodies;
  const {max_tokens, speculative} = asked;
  assert.deepEqual({...plain, max_tokens, speculative}, asked);
  assert.deepEqual(plain.speculative, {off: true, trace: true});
  await setMaxTokens(page, 5);
  await generate(page, PROMPT);
  await waitForText(page, '#progress', 'Done');
  assert.equal(await textOf(page, '#speedup'), '–');
  await closeClean(page);
});

test('numbers change while it generates, and Escape stops it', async () => {
  const page = await browser.open(server.origin);
  await waitForText(page, '#server', 'idle');
  const usedBefore = await numberOf(page, '#kv-used');
  await setMaxTokens(page, LONG);
  await generate(page, 'Once');
  await page.waitForFunction(() => Number(document.getElementById('emitted').textContent) > 0);
  const seen = await numberOf(page, '#emitted');
  await page.waitForFunction(
      (tokens) => Number(document.getElementById('emitted').textContent) > tokens, seen);
  await page.waitForFunction(
      (used) => Number(document.getElementById('kv-used').textContent) > used, usedBefore);
  assert.ok(await numberOf(page, '#tau') >= 1);
  assert.ok(await count(page, '#tree .node') >= 2);
  await page.keyboard.press('Escape');
  await waitForText(page, '#progress', 'Stopped.');
  assert.ok(await numberOf(page, '#emitted') < LONG);
  assert.equal(await page.locator('#answer').getAttribute('aria-busy'), 'false');
  await waitForText(page, '#server', 'idle');
  const blocks = await numberOf(page, '#kv-size');
  const parts = await Promise.all(
      ['#kv-used', '#kv-cached', '#kv-empty'].map((id) => numberOf(page, id)));
  assert.equal(parts[0] + parts[1] + parts[2], blocks);
  await closeClean(page);
});

test('without speculation nothing is drafted and tau is one', async () => {
  const page = await browser.open(server.origin);
  await page.locator('#speculate').focus();
  await page.keyboard.press('Space');
  await setMaxTokens(page, 20);
  await generate(page, PROMPT);
  await waitForText(page, '#progress', 'Done');
  assert.equal(await count(page, '#answer .draft'), 0);
  assert.equal(await textOf(page, '#tau'), '1.00');
  await closeClean(page);
});

test('an answer matches its schema', async () => {
  const page = await browser.open(server.origin);
  const bodies = bodiesOf(page);
  await page.locator('details:has(#schema) summary').click();
  await page.locator('#schema').fill('{"type": ');
  await waitForText(page, '#schema-mark', 'not JSON');
  const schema = {type: 'object', properties: {kind: {enum: ['play', 'poem']}, done: {const: true}},
    required: ['kind', 'done'], additionalProperties: false};
  await page.locator('#schema').fill(JSON.stringify(schema));
  await generate(page, PROMPT);
  await waitForText(page, '#progress', 'Done');
  assert.equal(await textOf(page, '#schema-mark'), 'valid');
  assert.deepEqual(bodies[0].response_format.json_schema.schema, schema);
  const text = (await page.locator('#answer').textContent()).slice(PROMPT.length);
  assert.deepEqual(Object.keys(JSON.parse(text)), ['kind', 'done']);
  await closeClean(page);
});

test('a chat has turns and a system prompt', async () => {
  const page = await browser.open(server.origin);
  const bodies = bodiesOf(page);
  assert.equal(await page.locator('#system').isVisible(), false);
  await page.getByLabel('Completion').focus();
  await page.keyboard.press('ArrowRight');
  await setMaxTokens(page, 20);
  await page.locator('#top-p').fill('0.9');
  await page.locator('#system').fill('Be brief.');
  const answers = [];
  for (const message of ['Who are you?', 'And then?']) {
    await generate(page, message);
    await page.waitForFunction(
        (turns) => document.querySelectorAll('.turn.assistant').length === turns &&
            document.getElementById('progress').textContent.startsWith('Done'),
        answers.length + 1);
    assert.equal(await page.locator('#prompt').inputValue(), '');
    answers.push(await page.locator('.turn.assistant').last().evaluate(
        (turn) => [...turn.querySelectorAll('.token')].map((one) => one.textContent).join('')));
  }
  assert.ok(await numberOf(page, '#emitted') > 0);
  assert.equal(await count(page, '#answer .prompt'), 0);
  assert.deepEqual(bodies[1].messages, [
    {role: 'system', content: 'Be brief.'},
    {role: 'user', content: 'Who are you?'},
    {role: 'assistant', content: answers[0]},
    {role: 'user', content: 'And then?'},
  ]);
  assert.equal(bodies[1].top_p, 0.9);
  await page.locator('#new-chat').click();
  assert.equal(await page.locator('#answer').textContent(), '');
  await generate(page, 'Hello');
  await page.waitForFunction(() => document.getElementById('prompt').value === '');
  assert.equal(bodies[2].messages.length, 2);
  await closeClean(page);
});

test('examples fill the form and run', async () => {
  // A template that shows tools, whatever the bundled one does.
  const chatty = await Server.start(program, ...FLAGS, '--chat-template', 'chatml');
  try {
    const page = await browser.open(chatty.origin);
    const bodies = bodiesOf(page);
    await setMaxTokens(page, 150);
    const run = async (name) => {
      await page.locator(`[data-example=${name}]`).click();
      await waitForText(page, '#progress', 'Done');
      return bodies.at(-1);
    };
    const story = await run('chat');
    assert.equal(await page.locator('#mode-chat').isChecked(), true);
    assert.equal(story.messages.length, 1);
    assert.equal(story.response_format, undefined);
    const json = await run('json');
    assert.ok(json.messages[0].content.includes('as JSON'));
    assert.equal(json.messages.length, 1);
    assert.equal(await page.locator('#schema').isVisible(), true);
    assert.match(await textOf(page, '#schema-mark'), /^(valid|cut)$/);
    const call = await run('tool');
    assert.equal(call.response_format, undefined);
    assert.deepEqual(call.tools.map((one) => one.function.name), ['get_weather', 'book_table']);
    assert.match(await textOf(page, '#tools-mark'), /called/);
    assert.ok(await count(page, '#tree .node') > 0);
    await closeClean(page);
  } finally {
    await chatty.stop();
  }
});

test('the answer can be copied', async () => {
  const permissions = ['clipboard-read', 'clipboard-write'];
  const page = await browser.open(server.origin, {permissions});
  assert.equal(await page.locator('#copy').isDisabled(), true);
  await setMaxTokens(page, 20);
  await generate(page, PROMPT);
  await waitForText(page, '#progress', 'Done');
  // It says so for a moment only.
  await Promise.all([waitForText(page, '#copy', 'Copied'), page.locator('#copy').click()]);
  const shown = await page.locator('#answer').textContent();
  assert.equal(PROMPT + await page.evaluate(() => navigator.clipboard.readText()), shown);
  await closeClean(page);
});

test('what a server cannot do cannot be chosen', async () => {
  // The bundled model without its template, on a server without a drafter.
  const model = join(folder, 'bare');
  rmSync(model, {recursive: true, force: true});
  mkdirSync(model);
  for (const name of ['config.json', 'model.safetensors', 'tokenizer.json']) {
    symlinkSync(join(repository, 'models/tiny', name), join(model, name));
  }
  const bare = await Server.start(
      program, '--model', model, '--speculative-algorithm', 'NONE');
  try {
    const page = await browser.open(bare.origin);
    await waitForText(page, '#server', 'idle');
    assert.equal(await page.locator('#speculate').isDisabled(), true);
    assert.equal(await page.locator('#speculate').isChecked(), false);
    assert.equal(await page.locator('#mode-chat').isDisabled(), true);
    assert.equal(await page.locator('#examples').isVisible(), false);
    await setMaxTokens(page, 8);
    await generate(page, PROMPT);
    await waitForText(page, '#progress', 'Done');
    assert.equal(await page.locator('#compare').isDisabled(), true);
    assert.equal(await page.locator('#mode-chat').isDisabled(), true);
    await closeClean(page);
  } finally {
    await bare.stop();
  }
});

test('what is wrong is said in words', async () => {
  const page = await browser.open(server.origin);
  await page.keyboard.press('Control+Enter');
  await waitForText(page, '#problem', 'Write a prompt first.');
  await generate(page, 'word '.repeat(20));
  await waitForText(page, '#progress', 'Done');
  assert.equal(await page.locator('#problem').isVisible(), false);
  await closeClean(page);

  const refused = await browser.open(server.origin);
  await setMaxTokens(refused, 20);
  await generate(refused, PROMPT);
  await waitForText(refused, '#progress', 'Done');
  assert.ok(await count(refused, '#tree .node') > 0);
  await refused.locator('#seed').fill('1e300');  // past any integer
  await generate(refused, PROMPT);
  await waitForText(refused, '#progress', 'Failed.');
  assert.match(await textOf(refused, '#problem'), /^seed/);
  assert.doesNotMatch(await textOf(refused, '#problem'), /\(seed\)/);
  // Nothing of the answer before is left.
  assert.equal(await count(refused, '#tree .node, #depths div, #spark path'), 0);
  assert.equal(await textOf(refused, '#replay-at'), '–');
  await refused.close();
});

test('a server with a key asks for it', async () => {
  const keyFile = join(folder, 'key');
  writeFileSync(keyFile, 'a-key-for-this-test\n', {mode: 0o600});
  const locked = await Server.start(program, ...FLAGS, '--api-key-file', keyFile);
  try {
    const page = await browser.open(locked.origin);
    await page.locator('#key').waitFor();
    assert.equal(await page.locator('#key-problem').isVisible(), false);
    await page.locator('#key').fill('another-key');
    await page.keyboard.press('Enter');
    await page.locator('#key-problem').waitFor();
    assert.equal(await page.locator('#key-form').isVisible(), true);
    await page.locator('#key').fill('a-key-for-this-test');
    await page.keyboard.press('Enter');
    await waitForText(page, '#server', 'idle');
    await setMaxTokens(page, 8);
    await generate(page, PROMPT);
    await waitForText(page, '#progress', 'Done');
    assert.equal(await page.locator('#key-form').isVisible(), false);
    await page.close();
  } finally {
    await locked.stop();
  }
});

test('the modules of the page', async () => {
  const page = await browser.open(server.origin);
  await testBurstDoesNotInflateTheRate(page);
  await testAllPassesAreKept(page);
  await testSplitByToken(page);
  await testToolCalls(page);
  await testTreeIsReadable(page);
  await closeClean(page);
});

for (const [name, width, height, colorScheme] of [
  ['light', 1280, 860, 'light'],
  ['dark', 1280, 860, 'dark'],
  ['narrow', 375, 800, 'light'],
  ['wide', 1920, 1080, 'dark'],
  ['middle', 1100, 800, 'light'],
]) {
  test(`${name}: fits its window, with contrast`, async () => {
    const page = await browser.open(server.origin, {viewport: {width, height}, colorScheme});
    await setMaxTokens(page, 120);
    await page.locator('#temperature').fill('0.8');
    await page.locator('#seed').fill('7');
    await generate(page, PROMPT);
    await waitForText(page, '#progress', 'Done');
    const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    assert.ok(overflow <= 0, `${overflow} pixels too wide`);
    const left = await page.locator('#answer').evaluate(
        (answer) => answer.scrollHeight - answer.scrollTop - answer.clientHeight);
    assert.ok(left < 2, `the answer is not shown to its end: ${left} pixels are left`);
    const holes = await page.evaluate(measureHoles);
    assert.deepEqual(holes.filter((hole) => hole > 2), [], 'beside the last chart of a row');
    const contrasts = await page.evaluate(measureContrasts);
    for (const [selector, contrast] of contrasts) {
      assert.ok(contrast >= 4.5, `${selector}: contrast ${contrast.toFixed(2)}`);
    }
    await browser.screenshot(page, name);
    await closeClean(page);
  });
}

// Runs in the page: how far each row of charts ends before the panel above it does.
function measureHoles() {
  const right = document.querySelector('.tree-panel').getBoundingClientRect().right;
  const rows = new Map();  // by their top
  for (const chart of document.querySelectorAll('.charts > *')) {
    const box = chart.getBoundingClientRect();
    rows.set(box.top, Math.max(box.right, rows.get(box.top) ?? 0));
  }
  return [...rows.values()].map((end) => Math.abs(right - end));
}

// Runs in the page: WCAG's contrast of text with its panel.
function measureContrasts() {
  const luminance = (color) => {
    const channels = color.match(/\d+/g).slice(0, 3).map((value) => {
      const share = value / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * channels[0] + 0.7152 * channels[1] + 0.0722 * channels[2];
  };
  const contrast = (one, other) => {
    const [low, high] = [luminance(one), luminance(other)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  const origins = ['.legend .draft', '.legend .bonus', '.legend .prompt'];
  return ['#prompt', '.hint', '.hint .bonus', 'dt', ...origins].map((selector) => {
    const element = document.querySelector(selector);
    const {backgroundColor} = getComputedStyle(element.closest('.panel'));
    return [selector, contrast(getComputedStyle(element).color, backgroundColor)];
  });
}
