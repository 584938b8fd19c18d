// A real Chromium and a page in it that writes down what it should not do.

import assert from 'node:assert/strict';
import {createRequire} from 'node:module';
import {join} from 'node:path';

const DEADLINE_MS = 300000;  // until something counts as hung

export class Browser {
  // folder: where npm installed playwright-core; screenshots go there too.
  static async start(chromium, folder) {
    const playwright = createRequire(join(folder, 'package.json'))('playwright-core');
    const browser = new Browser();
    browser.folder = folder;
    browser.chromium = await playwright.chromium.launch({
      executablePath: chromium,
      timeout: DEADLINE_MS,
      args: process.getuid() === 0 ? ['--no-sandbox'] : [],  // Chromium's sandbox refuses root
    });
    return browser;
  }

  // The page of a server; `options` are Playwright's for a new page.
  async open(origin, options = {}) {
    const page = await this.chromium.newPage(options);
    page.setDefaultTimeout(DEADLINE_MS);
    page.complaints = [];
    page.on('console', (message) => {
      if (message.type() === 'error') page.complaints.push(message.text());
    });
    page.on('pageerror', (error) => page.complaints.push(String(error)));
    page.on('request', (request) => {
      if (new URL(request.url()).origin !== origin) page.complaints.push(`asked ${request.url()}`);
    });
    await page.goto(`${origin}/`);
    return page;
  }

  async screenshot(page, name) {
    await page.screenshot({path: join(this.folder, `${name}.png`), fullPage: true});
  }

  async stop() {
    await this.chromium.close();
  }
}

// Closes a page that should have had nothing to complain about.
export async function closeClean(page) {
  assert.deepEqual(page.complaints, [], 'console errors and requests to other origins');
  await page.close();
}

// The text of an element, and the same as a number.
export const textOf = (page, selector) => page.locator(selector).innerText();
export const numberOf = async (page, selector) => Number.parseFloat(await textOf(page, selector));

export async function waitForText(page, selector, text) {
  await page.locator(selector).filter({hasText: text}).waitFor();
}

// Types a prompt and generates, by keyboard alone.
export async function generate(page, prompt) {
  await page.locator('#prompt').focus();
  await page.keyboard.press('Control+A');
  await page.keyboard.type(prompt);
  await page.keyboard.press('Control+Enter');
}
