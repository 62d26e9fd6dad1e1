// Opens a page of warpline from its file in a headless browser, for the tests of the page. A page fails if it makes a request, writes an
// error or a warning to the console, throws, opens a dialog or another window, or crashes, whatever its test says.
//
// `cargo xtask test --only pages` writes the pages, and sets WARPLINE_PAGES to their folder and CHROMIUM to the browser.

import { existsSync } from 'node:fs';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { after } from 'node:test';
import { chromium } from 'playwright-core';

// All that works for root in a container, and all that keeps the browser itself from the network.
export const FLAGS = [
  '--headless',
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
];

// A loaded machine is slow; a browser that hangs still fails.
export const PATIENCE_MS = 120_000;

const here = import.meta.dirname ?? path.dirname(new URL(import.meta.url).pathname);
const folder = process.env.WARPLINE_PAGES ?? path.join(here, '../../target/pages');

let browser;
let isClosedAfterTests = false;

/** Closes the browser that `visit` has started. */
export async function close() {
  await browser?.close();
  browser = undefined;
}

/** The path of a page, by its name in the folder of the pages. */
export function pageFile(name) {
  const file = path.resolve(folder, name);
  if (!existsSync(file)) {
    throw new Error(`there is no page ${file}; \`cargo xtask test --only pages\` writes it`);
  }
  return file;
}

/**
 * A test that opens a page, runs `body(page)` with Playwright's page, and fails on whatever a page must not do.
 *
 * @param {string} name the page's file in the folder of the pages, and a fragment if need be: `ranks.html#step=3`
 * @param {object} options of the browser context, such as `viewport` and `colorScheme`
 * @param {(page: import('playwright-core').Page, faults: string[]) => Promise<void>} body gets what the page has done wrong so far, too
 */
export function withPage(name, options, body) {
  if (!isClosedAfterTests) {
    isClosedAfterTests = true;
    after(close);
  }
  return () => visit(name, options, body);
}

/** The same at once; returns what `body` returns. The caller calls `close` at the end. */
export async function visit(name, options, body) {
  const [file, fragment] = name.split(/(?=#)/);
  const url = pathToFileURL(pageFile(file)).href;
  browser ??= await chromium.launch({ executablePath: process.env.CHROMIUM, args: FLAGS, timeout: PATIENCE_MS });
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, ...options });
  const faults = [];
  try {
    // Nothing leaves the machine even where the page is wrong.
    await context.setOffline(true);
    const page = await context.newPage();
    page.setDefaultTimeout(PATIENCE_MS);
    watch(context, page, url, faults);
    await page.goto(url + (fragment ?? ''), { waitUntil: 'load' });
    const result = await body(page, faults);
    // What the last action started has its turn.
    await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => setTimeout(done))));
    refuse(name, faults);
    return result;
  } catch (error) {
    // Mostly the cause of what the test says.
    refuse(name, faults, error);
    throw error;
  } finally {
    await context.close();
  }
}

function refuse(name, faults, cause) {
  if (faults.length === 0) return;
  const all = faults.splice(0).join('; ');
  throw new Error(`${path.basename(name)}: ${all}`, { cause });
}

function watch(context, page, url, faults) {
  const fault = (what) => faults.push(what);
  page.on('request', (request) => {
    const target = request.url();
    const isDocument = request.isNavigationRequest() && request.frame() === page.mainFrame() && target.split('#')[0] === url;
    if (!isDocument && !/^(data|blob):/.test(target)) fault(`the page requests ${target}`);
  });
  page.on('websocket', (socket) => fault(`the page opens a socket to ${socket.url()}`));
  page.on('console', (message) => {
    if (['error', 'warning', 'assert'].includes(message.type())) fault(`the console says: ${message.text()}`);
  });
  page.on('pageerror', (error) => fault(`the page throws: ${error.message}`));
  page.on('crash', () => fault('the page crashes'));
  page.on('dialog', (dialog) => {
    fault(`the page opens a dialog: ${dialog.message()}`);
    dialog.dismiss().catch(() => {});
  });
  context.on('page', (other) => {
    if (other !== page) fault(`the page opens a window: ${other.url()}`);
  });
}
