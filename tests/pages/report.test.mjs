// The page of `warpline report --html`. `cli/tests/report_page.rs` writes the pages: 200 steps, of which step 77 takes 3.5 ms more, and whose
// first load takes 30 ms more; a trace of PyTorch with kernels and collectives; one with hostile names; one step; one slice; nothing. `cli/tests/report_bounds.rs` writes one
// of zones whose ends are not timed.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { withPage } from './harness.mjs';

const PATIENCE = { timeout: 300_000 };

const hook = (page, name, ...args) => page.evaluate(([name, args]) => window.warplineReport[name](...args), [name, args]);
const reportOf = (page) => page.evaluate(() => JSON.parse(document.getElementById('data').textContent).report);

/** The rows of a table: texts by the keys of their columns. */
const rowsOf = (page, id) =>
  page.$$eval(`#${id} tbody tr`, (rows) => rows.map((row) => Object.fromEntries([...row.cells].map((cell) => [cell.dataset.key, cell.textContent]))));

/** A time as a person writes it, back in ns. */
function ns(text) {
  const [, value, unit] = /^([−\d.]+) (s|ms|µs|ns)$/.exec(text);
  return Number(value.replace('−', '-')) * { s: 1e9, ms: 1e6, µs: 1e3, ns: 1 }[unit];
}

const near = (one, other) => Math.abs(one - other) <= 0.0051 * Math.abs(other) + 0.5;

test('the verdict comes first, and names the range, the slow step and the first call', PATIENCE, withPage('report.html', {}, async (page) => {
  const verdict = await page.locator('#verdict li').allTextContents();
  assert.match(verdict[0], /^demo\.step takes [\d.]+ % of the time in zones on streams: .* of its own in 200 zones$/);
  assert.ok(verdict.some((line) => /^a step takes .* in the median; the slowest of 200 took .*, \d+\.\d times that$/.test(line)), verdict.join('\n'));
  assert.ok(verdict.some((line) => /^the first call of demo\.load takes 30\.2 ms, 15[01] times its median/.test(line)), verdict.join('\n'));
  assert.equal(await page.evaluate(() => document.querySelector('main').firstElementChild.id), 'verdict');
  assert.match(await page.title(), /^Report of steps\.pftrace$/);
  assert.match(await page.locator('#facts').innerText(), /^1,000 zones begun, 1,000 recorded, 0 dropped · session of .* ms · all marked zones$/);
}));

test('the cells are the figures of the JSON', PATIENCE, withPage('report.html', {}, async (page) => {
  const report = await reportOf(page);
  for (const [id, on] of [['ranges-stream', 'stream'], ['ranges-thread', 'thread']]) {
    const expected = report.ranges.filter((range) => range.on === on);
    const rows = await rowsOf(page, id);
    assert.equal(rows.length, expected.length);
    for (const range of expected) {
      const row = rows.find((row) => row.name === range.name);
      assert.equal(row.count.replaceAll(',', ''), String(range.count));
      for (const key of ['total_ns', 'self_ns', 'mean_ns', 'p50_ns', 'p99_ns', 'max_ns']) {
        assert.ok(near(ns(row[key]), range[key]), `${range.name} ${key}: ${row[key]} is ${range[key]}`);
      }
      assert.ok(Math.abs(parseFloat(row.share) - 100 * range.share) < 0.51, `${range.name}: ${row.share}`);
    }
  }
  // Host and GPU are apart, and so is the first call.
  const [load] = await rowsOf(page, 'ranges-thread');
  assert.equal(load.name, 'demo.load');
  assert.equal(load.first_ns, '30.2 ms');
  assert.equal(load.mean_ns, '200 µs');
  const streams = await rowsOf(page, 'streams');
  assert.deepEqual(streams.map((row) => row.name).sort(), ['compute', 'side']);
  const side = report.streams.find((stream) => stream.name === 'side');
  assert.ok(near(ns(streams.find((row) => row.name === 'side').waiting_ns), side.waiting_ns));
  assert.ok((await rowsOf(page, 'path-parts')).some((row) => row.name === 'demo.step'));
  assert.ok((await rowsOf(page, 'steps-stream')).every((row) => row.steps === '200'));
  assert.match(await page.locator('#account').innerText(), /1000 zones begun, 1000 recorded, 0 dropped/);
}));

test('kernels and collectives have tables', PATIENCE, withPage('report-torch.html', {}, async (page) => {
  const [collective] = await rowsOf(page, 'collectives');
  assert.equal(collective.name, 'all_reduce');
  assert.equal(collective.count, '12');
  assert.match(collective.bytes, /MiB$/);
  assert.match(collective.busbw_p50_bytes_per_s, / GB\/s$/);
  const kernels = await rowsOf(page, 'kernels');
  assert.deepEqual(kernels.map((row) => row.name).filter((name) => name.startsWith('kernel of')).sort(), ['kernel of backward', 'kernel of forward', 'kernel of optimizer']);
  // Without the account of a session, the verdict says so.
  assert.ok(await page.locator('#verdict.incomplete li.bad').count() > 0);
}));

test('what no event times is pale, and its length an interval', PATIENCE, withPage('report-bounds.html', {}, async (page) => {
  const rects = await hook(page, 'rects', 'timeline');
  const late = rects.find((rect) => rect.name === 'cli.bounds.late (end not timed)' && rect.w === rect.all);
  assert.deepEqual([late.all, late.least, late.uncertain, late.w], [3_725_000, 25_000, 3_700_000, 3_725_000]);
  const timed = rects.find((rect) => rect.name === 'cli.bounds.timed');
  assert.deepEqual([timed.uncertain, timed.least], [0, timed.all]);
  await page.locator('#timeline').scrollIntoViewIfNeeded();
  const { x, y } = await hook(page, 'point', 'timeline', rects.indexOf(late));
  await page.mouse.move(x, y);
  assert.match(await page.locator('#timeline .tip').innerText(), /\n25\.0 µs to 3\.73 ms, from [\d.]+ [µm]s\n/);
  assert.match(await page.locator('#timeline').innerText(), /Pale: the zone or the wait may have ended there, because no event times its end\./);
  const calls = await hook(page, 'rects', 'icicle');
  const tail = calls.find((rect) => rect.name === '(end not timed)');
  const around = calls.find((rect) => rect.name === 'cli.bounds.late (end not timed)');
  assert.deepEqual([tail.isUncertain, around.isUncertain], [true, false]);
  // One name has one color, in both drawings.
  assert.notDeepEqual(await hook(page, 'color', 'timeline', rects.indexOf(late)), await hook(page, 'color', 'icicle', calls.indexOf(around)));
  await page.locator('#icicle').scrollIntoViewIfNeeded();
  const at = await hook(page, 'point', 'icicle', calls.indexOf(around));
  await page.mouse.move(at.x, at.y);
  assert.match(await page.locator('#icicle .tip').innerText(), /\n≤44\.7 ms in 12 zones: /);
}));

test('a table is sorted by its columns', PATIENCE, withPage('report.html', {}, async (page) => {
  const totals = async () => (await rowsOf(page, 'ranges-stream')).map((row) => ns(row.total_ns));
  const before = await totals();
  assert.deepEqual(before, [...before].sort((a, b) => b - a));
  const head = (key) => page.locator(`#ranges-stream th[data-key="${key}"]`);
  assert.equal(await head('total_ns').getAttribute('aria-sort'), 'descending');
  await head('total_ns').locator('button').click();
  assert.equal(await head('total_ns').getAttribute('aria-sort'), 'ascending');
  assert.deepEqual(await totals(), [...before].sort((a, b) => a - b));
  await head('name').locator('button').click();
  const names = (await rowsOf(page, 'ranges-stream')).map((row) => row.name);
  assert.deepEqual(names, ['demo.attention', 'demo.copy', 'demo.step']);
  assert.equal(await head('total_ns').getAttribute('aria-sort'), null);
}));

test('the search filters tables, and fades the rest of the drawings', PATIENCE, withPage('report.html', {}, async (page) => {
  const rects = await hook(page, 'rects', 'timeline');
  const at = rects.findIndex((rect) => rect.name === 'demo.step');
  const color = await hook(page, 'color', 'timeline', at);
  await page.keyboard.press('/');
  await page.keyboard.type('Demo COP');
  assert.deepEqual((await rowsOf(page, 'ranges-stream')).map((row) => row.name), ['demo.copy']);
  assert.match(await page.locator('#ranges-stream').innerText(), /2 rows filtered out/);
  assert.match(await page.locator('#found').innerText(), /^\d+ rows?$/);
  assert.notDeepEqual(await hook(page, 'color', 'timeline', at), color);
  await page.fill('#query', '');
  assert.equal((await rowsOf(page, 'ranges-stream')).length, 3);
  assert.deepEqual(await hook(page, 'color', 'timeline', at), color);
}));

test('the timeline shows the slowest step, and a usual one', PATIENCE, withPage('report.html', {}, async (page) => {
  assert.deepEqual(await hook(page, 'rows', 'timeline'), ['steps', 'main', 'compute', 'compute · kernels', 'side', 'side · copies']);
  const rects = await hook(page, 'rects', 'timeline');
  const of = (name) => rects.filter((rect) => rect.name === name);
  const [step, inner] = [of('demo.step')[0], of('demo.attention')];
  assert.equal(step.w, 4_070_000);
  assert.equal(inner.length, 2);
  assert.ok(inner.every((rect) => rect.lane === step.lane + 1 && rect.x >= step.x), 'zones are below those around them');
  assert.equal(of('void gemm<float>(float*)').length, 1, 'a kernel is there once');
  assert.ok(rects.some((rect) => rect.isWait), 'the wait of `side`');
  assert.ok((await hook(page, 'marks', 'timeline')).length > 0, 'the critical path is marked');
  await page.locator('#timeline').scrollIntoViewIfNeeded();
  const at = rects.indexOf(step);
  const { x, y } = await hook(page, 'point', 'timeline', at);
  await page.mouse.move(x, y);
  assert.match(await page.locator('#timeline .tip').innerText(), /^demo\.step\n4\.07 ms, from 310 µs\nzone on a stream · compute\nbatch = 77, phase = warm-up$/);
  await page.mouse.click(x, y);
  assert.match(await page.locator('#timeline .picked').innerText(), /^demo\.step · 4\.07 ms/);
  await page.selectOption('#which', '1');
  const usual = (await hook(page, 'rects', 'timeline')).find((rect) => rect.name === 'demo.step');
  assert.ok(usual.w >= 500_000 && usual.w <= 600_000, `${usual.w}`);
}));

test('the icicle has the time of each range within others', PATIENCE, withPage('report.html', {}, async (page) => {
  const report = await reportOf(page);
  const rects = await hook(page, 'rects', 'icicle');
  for (const rect of rects) {
    const range = report.ranges.find((range) => range.name === rect.name && range.on === 'stream');
    assert.deepEqual([rect.w, rect.self, rect.calls], [range.total_ns, range.self_ns, range.count], rect.name);
  }
  const [outer, inner] = ['demo.step', 'demo.attention'].map((name) => rects.find((rect) => rect.name === name));
  assert.deepEqual([outer.lane, inner.lane, inner.x], [0, 1, outer.x]);
  await page.locator('#icicle').scrollIntoViewIfNeeded();
  const { x, y } = await hook(page, 'point', 'icicle', rects.indexOf(inner));
  await page.mouse.move(x, y);
  assert.match(await page.locator('#icicle .tip').innerText(), /^demo\.attention\n40\.0 ms in 400 zones: [\d.]+ % of all\n40\.0 ms of its own/);
  await page.mouse.dblclick(x, y);
  const view = await hook(page, 'view', 'icicle');
  assert.ok(view.to - view.from < 1.1 * inner.w, 'it is enlarged');
}));

test('a histogram is shown for the range that is picked', PATIENCE, withPage('report.html', {}, async (page) => {
  await page.locator('#ranges-thread tbody button').first().click();
  assert.match(await page.locator('#range').innerText(), /^demo\.load on threads: 200 zones, 200 µs to 30\.2 ms\. The first call took 30\.2 ms and is not in it\.$/);
  const bars = await page.$$eval('#bars rect title', (titles) => titles.map((title) => title.textContent));
  assert.equal(bars.length, 1);
  assert.match(bars[0], /^199 zones of \d+ µs to \d+ µs$/);
  const text = await page.locator('#bars').textContent();
  assert.match(text, /p50 20[01] µs/);
}));

test('declared work has a table and a roofline', PATIENCE, withPage('report-work.html', {}, async (page) => {
  const rows = await rowsOf(page, 'work');
  const copy = rows.find((row) => row.name === 'demo.copy');
  assert.deepEqual([copy.bytes_per_s, copy.bytes_share, copy.flops_per_s, copy.flops_per_byte], ['838 GB/s', '25.0 %', '105 GFLOP/s', '0.13']);
  assert.equal(rows.find((row) => row.name === 'demo.attention').bytes_share, '–');
  const { device, points, decade, wide } = await page.evaluate(() => window.warplineReport.roofline());
  assert.equal(device, 'NVIDIA H100 80GB HBM3');
  // A quarter of what the memory allows, and a half of what the tensor cores do.
  for (const [name, share] of [['demo.copy', 0.25], ['demo.step', 0.5]]) {
    const point = points.find((point) => point.name === name);
    assert.ok(Math.abs((point.cy - point.roof) / decade + Math.log10(share)) < 1e-3, `${name}: ${point.cy} below ${point.roof}`);
    const circle = page.locator(`#roofs circle[data-name="${name}"]`);
    assert.ok(Math.abs(Number(await circle.getAttribute('cx')) - point.cx) < 1e-6 && Math.abs(Number(await circle.getAttribute('cy')) - point.cy) < 1e-6);
  }
  const [slow, fast] = points.map(({ cx }) => cx).sort((a, b) => a - b);
  assert.ok(Math.abs((fast - slow) / wide - Math.log10(4_000)) < 1e-3);
  assert.deepEqual(await page.locator('#roofs text.roof').allTextContents(), ['990 TFLOP/s, 16 bits, tensor cores', '67.0 TFLOP/s, 32 bits', '3.35 TB/s, memory']);
  assert.match(await page.locator('#roofline .note').innerText(), /^The roofs are those that the vendor of NVIDIA H100 80GB HBM3 states\./);
  await page.locator('#roofs circle[data-name="demo.copy"]').focus();
  assert.equal(await page.locator('#roofline .picked').textContent(), 'demo.copy on streams: 105 GFLOP/s and 838 GB/s, 0.13 operations a byte, 25.0 % of what the roofs allow');
  await page.fill('#query', 'step');
  assert.equal(await page.locator('#roofs circle.faded').count(), 1);
  await page.fill('#query', '');
  // No roof is made up for the other device.
  await page.locator('#roofline select').selectOption('1');
  assert.equal(await page.locator('#roofs circle').count(), 1);
  assert.equal(await page.locator('#roofs line.roof').count(), 0);
  assert.match(await page.locator('#roofline .note').innerText(), /^The peak of NVIDIA Tomorrow is not known/);
  assert.equal(await page.evaluate(() => document.documentElement.scrollWidth <= document.documentElement.clientWidth), true);
}));

test('roofs that were measured say so', PATIENCE, withPage('report-measured.html', {}, async (page) => {
  await page.locator('#roofline select').selectOption({ label: 'NVIDIA Tomorrow' });
  assert.deepEqual(await page.locator('#roofs text.roof').allTextContents(), ['4.00 GFLOP/s, FP32 multiply-adds', '2.00 GB/s, memory']);
  assert.match(await page.locator('#roofline .note').innerText(), /^The roofs are the rates that a copy and multiply-adds reached on NVIDIA Tomorrow on 2026-11-25 with CUDA 13\.0, 580\.159\.04\./);
}));

test('a page without declared work has no roofline', PATIENCE, withPage('report.html', {}, async (page) => {
  assert.equal(await page.locator('#roofline').count(), 0);
}));

test('the critical path is drawn, with its arrows', PATIENCE, withPage('report.html', {}, async (page) => {
  const rows = await hook(page, 'rows', 'path');
  assert.deepEqual([...rows].sort(), ['compute', 'main', 'side']);
  const [rects, links] = [await hook(page, 'rects', 'path'), await hook(page, 'links', 'path')];
  assert.ok(rects.length > 400 && links.length > 400, `${rects.length} ${links.length}`);
  const sum = rects.reduce((all, rect) => all + rect.w, 0);
  const { length } = await hook(page, 'view', 'path');
  assert.ok(sum <= length + rects.length, `${sum} of ${length}`);
}));

test('the keyboard reaches everything', PATIENCE, withPage('report.html', {}, async (page) => {
  const reached = new Set();
  for (let at = 0; at < 200; at += 1) {
    await page.keyboard.press('Tab');
    reached.add(await page.evaluate(() => {
      const { id, tagName, ariaLabel } = document.activeElement;
      return id || ariaLabel || tagName;
    }));
  }
  for (const what of ['theme', 'query', 'Timeline', 'Time by call', 'Critical path', 'which', 'Range']) assert.ok(reached.has(what), `${what} is not reached`);
  const canvas = page.locator('#timeline canvas');
  await canvas.focus();
  await page.keyboard.press('ArrowRight');
  const first = await page.locator('#timeline .picked').textContent();
  await page.keyboard.press('ArrowDown');
  assert.notEqual(await page.locator('#timeline .picked').textContent(), first);
  const wide = await hook(page, 'view', 'timeline');
  await page.keyboard.press('+');
  const close = await hook(page, 'view', 'timeline');
  assert.ok(close.to - close.from < wide.to - wide.from);
  await page.keyboard.press('0');
  assert.deepEqual(await hook(page, 'view', 'timeline'), wide);
  await page.keyboard.press('Enter');
  await page.keyboard.press('Escape');
  assert.equal(await page.locator('#timeline .picked').textContent(), '');
}));

test('colors follow the system and the button', PATIENCE, withPage('report.html', { colorScheme: 'light' }, async (page) => {
  const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const light = await background();
  const zone = await hook(page, 'color', 'timeline', 0);
  await page.emulateMedia({ colorScheme: 'dark' });
  assert.notEqual(await background(), light);
  await page.waitForFunction((old) => String(window.warplineReport.color('timeline', 0)) !== String(old), zone);
  await page.click('#theme');
  assert.equal(await page.locator('#theme').innerText(), 'Colors: light');
  assert.equal(await background(), light);
  assert.deepEqual(await hook(page, 'color', 'timeline', 0), zone);
}));

test('a hostile name stays a text', PATIENCE, withPage('report-hostile.html', {}, async (page) => {
  // The harness fails on the dialog, the request for the image, and what the policy of the page would say.
  assert.equal(await page.locator('img').count(), 0);
  assert.equal(await page.locator('script').count(), 2);
  const name = '</script><script>alert(1)</script><img src=x onerror="alert(1)">';
  for (const place of ['#ranges-stream tbody', '#ranges-thread tbody', '#kernels tbody', '#collectives tbody', '#histogram select']) {
    assert.ok((await page.locator(place).textContent()).includes(name), place);
  }
  const names = (await hook(page, 'rects', 'timeline')).map((rect) => rect.name);
  assert.ok(names.some((one) => one.includes(name)));
  const at = names.findIndex((one) => one.startsWith('</script>'));
  await page.locator('#timeline').scrollIntoViewIfNeeded();
  const { x, y } = await hook(page, 'point', 'timeline', at);
  await page.mouse.move(x, y);
  assert.ok((await page.locator('#timeline .tip').textContent()).includes(name));
  // Directions do not spread, and a name that is longer than the page does not widen it.
  assert.ok((await page.locator('#ranges-stream tbody').textContent()).includes('\\u{202e}gnorw'));
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= document.documentElement.clientWidth), 'the page is not wider than the window');
  for (const one of ['__proto__', 'constructor', 'שלום عليكم']) {
    assert.ok((await rowsOf(page, 'ranges-stream')).some((row) => row.name === one), one);
  }
  await page.fill('#query', '<img');
  assert.equal((await rowsOf(page, 'ranges-stream')).length, 1);
}));

test('slices that are too short to be drawn alone are drawn together, and a link leads to a title that is seen', PATIENCE, withPage('report-merged.html', {}, async (page) => {
  const rects = await hook(page, 'rects', 'timeline');
  const blocks = rects.filter(({ name }) => name.endsWith('too short to be drawn alone'));
  assert.equal(blocks.reduce((sum, { name }) => sum + Number(name.split(' ')[0].replace(/\D/g, '')), 0), 5_000);
  assert.match(await page.locator('#timeline > p.note').first().innerText(), /5,000 shorter ones are merged into the gray blocks/);
  await page.locator('#contents a', { hasText: 'Time by call' }).click();
  const edge = async (at, side) => (await page.locator(at).boundingBox()).y + (side === 'bottom' ? (await page.locator(at).boundingBox()).height : 0);
  assert.ok(await edge('#icicle h2') >= await edge('#search', 'bottom'), 'the title is below the search');
}));

test('one step, one slice and nothing have pages', PATIENCE, async () => {
  await withPage('report-one.html', {}, async (page) => {
    assert.deepEqual(await page.locator('#which option').allTextContents(), ['the first step, 0: 990 µs']);
    assert.ok((await hook(page, 'rects', 'timeline')).length >= 3);
  })();
  await withPage('report-alone.html', {}, async (page) => {
    assert.deepEqual((await rowsOf(page, 'ranges-thread')).map((row) => [row.name, row.count]), [['alone', '1']]);
    assert.equal((await hook(page, 'rects', 'timeline')).length, 1);
  })();
  await withPage('report-empty.html', {}, async (page) => {
    assert.equal(await page.locator('#verdict').innerText(), 'no zone was recorded');
    assert.equal(await page.locator('#verdict.incomplete').count(), 1);
    assert.equal(await page.locator('table').count(), 0);
    assert.equal(await page.locator('canvas').count(), 0);
  })();
});

test('the page of a session has its tables', PATIENCE, withPage('report-session.html', {}, async (page) => {
  assert.deepEqual((await rowsOf(page, 'ranges-stream')).map((row) => [row.name, row.count]), [['cli.paged.work', '10']]);
  assert.equal(await page.title(), 'Report of a session');
  assert.equal(await page.locator('#timeline').count(), 0);
  await page.fill('#query', 'none');
  assert.deepEqual(await rowsOf(page, 'ranges-stream'), []);
}));

test('a narrow window is enough', PATIENCE, withPage('report.html', { viewport: { width: 420, height: 800 } }, async (page) => {
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= document.documentElement.clientWidth));
}));
