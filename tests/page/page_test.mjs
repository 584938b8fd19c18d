// The page at `/` in a real Chromium, against the real program with the bundled model.
//
// Usage: node page_test.mjs PATH_OF_TALON PATH_OF_CHROMIUM FOLDER
// FOLDER has playwright-core in its node_modules and gets the screenshots.

import assert from 'node:assert/strict';
import {writeFileSync} from 'node:fs';
import {join} from 'node:path';
import {after, before, test} from 'node:test';

import {Browser, closeClean, generate, numberOf, textOf, waitForText} from './browser.mjs';
import {
  testBurstDoesNotInflateTheRate,
  testSplitByToken,
  testTreeIsReadable,
} from './modules.mjs';
import {Server} from './server.mjs';

const [program, chromium, folder] = process.argv.slice(2);
const PROMPT = 'It was a dark night';
const LONG = 20000;  // tokens that no machine generates before the test stops them
// Speculation on whatever it costs on this machine: the trees are what is looked at.
const FLAGS = ['--speculative-algorithm', 'EAGLE3', '--speculative-adaptive', 'false'];

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

test('trees are drawn, and earlier passes can be looked at again', async () => {
  const page = await browser.open(server.origin);
  await generate(page, PROMPT);
  await waitForText(page, '#progress', 'Done');
  const [last, total] = (await textOf(page, '#replay-at')).split(' / ').map(Number);
  assert.equal(last, total);
  assert.ok(total > 1);
  assert.equal(await count(page, '#tree .root'), 1);
  await page.locator('#replay').focus();
  await page.keyboard.press('Home');
  assert.equal(await textOf(page, '#replay-at'), `1 / ${total}`);
  let accepted = 0;
  for (let pass = 1; pass <= total; ++pass) {
    assert.ok(await count(page, '#tree .node') >= 2, `nodes of pass ${pass}`);
    accepted += await count(page, '#tree .node.accepted');
    await page.keyboard.press('ArrowRight');
  }
  assert.equal(accepted, await numberOf(page, '#accepted'));
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

test('a chat is answered', async () => {
  const page = await browser.open(server.origin);
  await page.getByLabel('Completion').focus();
  await page.keyboard.press('ArrowRight');
  await setMaxTokens(page, 20);
  await generate(page, 'Who are you?');
  await waitForText(page, '#progress', 'Done');
  assert.ok(await numberOf(page, '#emitted') > 0);
  assert.equal(await count(page, '#answer .prompt'), 0);
  await closeClean(page);
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
  await refused.locator('#seed').fill('1e300');  // past any integer
  await generate(refused, PROMPT);
  await waitForText(refused, '#progress', 'Failed.');
  assert.match(await textOf(refused, '#problem'), /seed/);
  await refused.close();
});

test('a server with a key asks for it', async () => {
  const keyFile = join(folder, 'key');
  writeFileSync(keyFile, 'a-key-for-this-test\n', {mode: 0o600});
  const locked = await Server.start(program, ...FLAGS, '--api-key-file', keyFile);
  try {
    const page = await browser.open(locked.origin);
    await page.locator('#key').waitFor();
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
  await testSplitByToken(page);
  await testTreeIsReadable(page);
  await closeClean(page);
});

for (const [name, width, height, colorScheme] of [
  ['light', 1280, 860, 'light'],
  ['dark', 1280, 860, 'dark'],
  ['narrow', 375, 800, 'light'],
  ['wide', 1920, 1080, 'dark'],
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
    const contrasts = await page.evaluate(measureContrasts);
    for (const [selector, contrast] of contrasts) {
      assert.ok(contrast >= 4.5, `${selector}: contrast ${contrast.toFixed(2)}`);
    }
    await browser.screenshot(page, name);
    await closeClean(page);
  });
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
  return ['#prompt', '.hint', 'dt', ...origins].map((selector) => {
    const element = document.querySelector(selector);
    const {backgroundColor} = getComputedStyle(element.closest('.panel'));
    return [selector, contrast(getComputedStyle(element).color, backgroundColor)];
  });
}
