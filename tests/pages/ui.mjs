// `node ui.mjs UI TRACE OUT.png WIDTHxHEIGHT FROM_MS LENGTH_MS [COMMANDS]`: a picture of a trace in Perfetto's own UI, for the documentation.
// `cargo xtask picture` calls it. UI is a folder with the UI's files, which are served on 127.0.0.1 beside the trace; the browser asks nobody
// else. The rows are open as `warpline open` opens them, and times count from the begin of the trace.

import { createReadStream, existsSync } from 'node:fs';
import http from 'node:http';
import path from 'node:path';
import { chromium } from 'playwright-core';
import { FLAGS, PATIENCE_MS } from './harness.mjs';

const [ui, trace, out, size, from, length, commands] = process.argv.slice(2);
const [width, height] = size.split('x').map(Number);
const TYPES = { '.html': 'text/html', '.js': 'text/javascript', '.css': 'text/css', '.wasm': 'application/wasm', '.json': 'application/json' };
const server = http.createServer((request, response) => {
  const wanted = decodeURIComponent(request.url.split(/[?#]/)[0]);
  const file = wanted === '/trace' ? trace : path.join(ui, path.normalize(wanted === '/' ? '/index.html' : wanted));
  if (!existsSync(file)) return response.writeHead(404).end();
  response.writeHead(200, { 'Content-Type': TYPES[path.extname(file)] ?? 'application/octet-stream' });
  createReadStream(file).pipe(response);
});
await new Promise((ready) => server.listen(0, '127.0.0.1', ready));
const origin = `http://127.0.0.1:${server.address().port}`;
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: FLAGS, timeout: PATIENCE_MS });
try {
  const context = await browser.newContext({ viewport: { width, height }, reducedMotion: 'reduce' });
  await context.route((url) => url.origin !== origin, (route) => route.abort());
  await context.addInitScript(() => {
    const settings = { timestampFormat: 'milliseconds', durationPrecision: 'human_readable', analyticsEnable: false };
    localStorage.setItem('perfettoSettings', JSON.stringify(settings));
  });
  const page = await context.newPage();
  page.setDefaultTimeout(PATIENCE_MS);
  const startup = commands === undefined ? '' : `&startupCommands=${commands}`;
  await page.goto(`${origin}/#!/?hideSidebar=true&url=${encodeURIComponent(`${origin}/trace`)}${startup}`);
  // The UI says nothing when it has drawn: the trace is loaded, its commands have run, and no row is loading.
  await page.waitForFunction(() => globalThis.app?.trace !== undefined);
  await page.waitForSelector('.pf-track-tree .pf-track');
  const isQuiet = () => !/Loading|Running/.test(document.body.innerText);
  await page.waitForFunction(isQuiet);
  await page.waitForTimeout(1_500);
  if (length !== 'all') {
    await page.evaluate(
      ([from, length]) => {
        const ns = (ms) => BigInt(Math.round(ms * 1e6));
        const { timeline, traceInfo } = globalThis.app.trace;
        timeline.setViewportTime(traceInfo.start + ns(from), traceInfo.start + ns(from + length));
      },
      [Number(from), Number(length)],
    );
  }
  await page.waitForTimeout(1_500);
  await page.waitForFunction(isQuiet);
  await page.waitForTimeout(500);
  // The time axis and the rows, without the bars around them.
  const clip = await page.evaluate(() => {
    const box = (selector) => document.querySelector(selector)?.getBoundingClientRect();
    const axis = box('.pf-viewer-page__header');
    const rows = box('.pf-track-tree .pf-virtual-overlay-canvas__content');
    const bottom = Math.min(rows.bottom, box('.pf-track-tree').bottom);
    return { x: 0, y: axis.top, width: axis.width, height: bottom - axis.top };
  });
  await page.screenshot({ path: out, clip });
} catch (error) {
  console.error(error.message);
  process.exitCode = 1;
} finally {
  await browser.close();
  server.close();
}
