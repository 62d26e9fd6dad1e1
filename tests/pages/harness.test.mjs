// The harness against pages that do what none may do: each is refused, and a page that does nothing passes.

import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, test } from 'node:test';
import { close, visit } from './harness.mjs';

const folder = mkdtempSync(path.join(tmpdir(), 'warpline-pages-'));
after(close);
after(() => rmSync(folder, { recursive: true, force: true }));

function page(name, body) {
  const file = path.join(folder, name);
  writeFileSync(file, `<!doctype html><meta charset="utf-8"><title>${name}</title><p id="here">here</p>${body}`);
  return file;
}

const REFUSED = {
  'a request for an image': ['<img src="https://example.invalid/a.png">', /requests https:\/\/example\.invalid\/a\.png/],
  'a request for a file': ['<script src="other.js"></script>', /requests file:.*other\.js/],
  'a request from a style': ['<style>p { background: url(http://example.invalid/b.png) }</style>', /requests http:\/\/example/],
  'a request by fetch': ['<script>fetch("https://example.invalid/c").catch(() => {})</script>', /requests https:\/\/example/],
  'a socket': ['<script>new WebSocket("ws://example.invalid/")</script>', /socket to ws:\/\/example/],
  'an error on the console': ['<script>console.error("lost")</script>', /console says: lost/],
  'an exception': ['<script>setTimeout(() => { throw new Error("broken") })</script>', /throws: broken/],
  'a rejected promise': ['<script>Promise.reject(new Error("alone"))</script>', /throws: alone/],
  'a dialog': ['<script>setTimeout(() => alert("hello"))</script>', /dialog: hello/],
};

const PATIENCE = { timeout: 120_000 };

for (const [what, [body, fault]] of Object.entries(REFUSED)) {
  test(`${what} is refused`, PATIENCE, async () => {
    const file = page('refused.html', body);
    const untilItHappens = async (opened, faults) => {
      while (faults.length === 0) await opened.waitForTimeout(20);
    };
    await assert.rejects(visit(file, {}, untilItHappens), fault);
  });
}

test('a fault is told beside the failure of a test', async () => {
  const file = page('both.html', '<script>console.error("the cause")</script>');
  const isBoth = (error) => /the cause/.test(error.message) && /the test/.test(error.cause.message);
  await assert.rejects(visit(file, {}, () => assert.fail('the test')), isBoth);
});

test('a page that does nothing wrong passes, with its fragment', async () => {
  const file = page('clean.html', '<img alt="" src="data:image/gif;base64,R0lGODlhAQABAAAAACwAAAAAAQABAAA=">');
  const hash = await visit(`${file}#here`, {}, (opened) => opened.evaluate(() => location.hash));
  assert.equal(hash, '#here');
});

test('a page that is not there is named', async () => {
  await assert.rejects(visit('missing.html', {}, () => {}), /there is no page .*missing\.html/);
});
