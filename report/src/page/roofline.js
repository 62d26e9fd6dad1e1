// The roofline: for each range that declares bytes and operations, how many operations it does with a byte, and how many a second. Both axes are
// logarithmic. No point can lie above the roofs of its device, unless data came from a cache.

/** Names that stand beside their points; the others have them in the title. */
const NAMED = 12;

const flopsPerSecond = (rate) => scaledRate(rate, 'FLOP/s');

/** A rate with three digits: `1.43 TB/s`. */
function scaledRate(rate, unit) {
  const [value, prefix] = rate >= 1e15 ? [rate / 1e15, 'P'] : rate >= 1e12 ? [rate / 1e12, 'T'] : rate >= 1e9 ? [rate / 1e9, 'G'] : rate >= 1e6 ? [rate / 1e6, 'M'] : [rate / 1e3, 'k'];
  return `${digits(value)} ${prefix}${unit}`;
}

/** The roofs of a device, the highest first: the operations per second that they allow at most, beside the memory. */
function roofsOf(row) {
  const roofs = [
    { flops: row.peak_f16_flops_per_s, name: '16 bits, tensor cores' },
    { flops: row.peak_f32_flops_per_s, name: row.peak_measured_on ? 'FP32 multiply-adds' : '32 bits' },
  ];
  return roofs.filter(({ flops }) => flops > 0).sort((a, b) => b.flops - a.flops);
}

/** What a device's drawing shows: its points, its roofs, and the ends of the axes, which are powers of ten. */
function rooflineModel(rows) {
  const [first] = rows;
  const total = new Map((REPORT.ranges ?? []).map((range) => [`${range.on} ${range.name}`, range.total_ns]));
  const points = rows
    .map((row) => ({ ...row, x: row.flops_per_byte, y: row.flops_per_s, total_ns: total.get(`${row.on} ${row.name}`) ?? 0 }))
    .sort((a, b) => b.total_ns - a.total_ns);
  const roofs = roofsOf(first);
  const memory = first.peak_bytes_per_s;
  const ridges = memory ? roofs.map(({ flops }) => flops / memory) : [];
  const [xs, ys] = [[...points.map(({ x }) => x), ...ridges], [...points.map(({ y }) => y), ...roofs.map(({ flops }) => flops)]];
  const ends = (all) => {
    const [low, high] = [Math.floor(Math.log10(Math.min(...all) / 1.5)), Math.ceil(Math.log10(Math.max(...all) * 1.5))];
    return [low, Math.max(high, low + 1)];
  };
  return { device: first.device, points, roofs, memory, measured: first.peak_measured_on, driver: first.peak_driver, xs: ends(xs), ys: ends(ys) };
}

const ROOFLINES = (() => {
  const devices = new Map();
  for (const row of REPORT.work ?? []) {
    if (row.on === 'thread' || !row.device || !(row.flops_per_byte > 0) || !(row.flops_per_s > 0)) continue;
    devices.set(row.device, [...(devices.get(row.device) ?? []), row]);
  }
  return [...devices.values()].map(rooflineModel);
})();

/** Puts the section together; returns a function that fades the points whose names do not pass a test. */
function makeRoofline(section) {
  if (ROOFLINES.length === 0) {
    section.remove();
    return undefined;
  }
  const picker = element('select', { 'aria-label': 'Device' }, ...ROOFLINES.map(({ device }, at) => element('option', { value: String(at) }, shortened(device))));
  const said = element('p', { class: 'picked', 'aria-live': 'polite' });
  const about = element('p', { class: 'note' });
  if (ROOFLINES.length > 1) byId('roofs').before(element('div', { class: 'controls' }, element('label', {}, 'Device ', picker)));
  byId('roofs').after(said, about);
  let test = () => true;
  const fade = () => byId('roofs').querySelectorAll('[data-name]').forEach((drawn) => drawn.classList.toggle('faded', !test(drawn.dataset.name)));
  const draw = () => {
    const model = ROOFLINES[Number(picker.value)];
    said.textContent = '';
    drawRoofline(byId('roofs'), model, (text) => { said.textContent = text; });
    about.textContent = `${aboutRoofs(model)} Area: the total time of the range. Both axes are logarithmic.`;
    fade();
  };
  picker.addEventListener('change', draw);
  draw();
  return (passes) => {
    test = passes;
    fade();
  };
}

function aboutRoofs({ device, memory, measured, driver }) {
  const name = shortened(device);
  if (!memory) return `The peak of ${name} is not known, so it has no roofs.`;
  if (measured) return `The roofs are the rates that a copy and multiply-adds reached on ${name} on ${measured} with ${driver}.`;
  return `The roofs are those that the vendor of ${name} states.`;
}

/** The highest rate that the roofs allow at an intensity. */
function attainable({ memory, roofs }, intensity) {
  return Math.min(memory * intensity, roofs[0]?.flops ?? Infinity);
}

function describePoint(model, point) {
  const roof = model.memory ? `, ${percent(point.y / attainable(model, point.x))} of what the roofs allow` : '';
  return `${shortened(point.name)} ${PLACES[point.on].long}: ${flopsPerSecond(point.y)} and ${scaledRate(point.bytes_per_s, 'B/s')}, ${digits(point.x)} operations a byte${roof}`;
}

/** The pixels of a place: `x` operations a byte, `y` operations a second. */
function rooflinePlace({ xs, ys }) {
  const [width, height, left, right, bottom, top] = [900, 380, 92, 28, 44, 14];
  const part = (value, [low, high]) => (Math.log10(value) - low) / (high - low);
  return {
    width,
    height,
    left,
    right: width - right,
    floor: height - bottom,
    top,
    x: (value) => left + part(value, xs) * (width - left - right),
    y: (value) => height - bottom - part(value, ys) * (height - bottom - top),
  };
}

function drawRoofline(drawn, model, say) {
  const place = rooflinePlace(model);
  const { width, height, left, right, floor, top, x, y } = place;
  drawn.replaceChildren();
  drawn.setAttribute('viewBox', `0 0 ${width} ${height}`);
  drawn.setAttribute('aria-label', `Roofline of ${shortened(model.device)}`);
  const powers = ([low, high]) => Array.from({ length: high - low + 1 }, (_, at) => 10 ** (low + at));
  for (const power of powers(model.xs)) {
    drawn.append(svg('line', { class: 'grid', x1: x(power), x2: x(power), y1: top, y2: floor }));
    drawn.append(svg('text', { x: x(power), y: floor + 16, 'text-anchor': 'middle' }, power >= 1 ? count(power) : String(Number(power.toPrecision(1)))));
  }
  for (const power of powers(model.ys)) {
    drawn.append(svg('line', { class: 'grid', x1: left, x2: right, y1: y(power), y2: y(power) }));
    drawn.append(svg('text', { x: left - 6, y: y(power) + 4, 'text-anchor': 'end' }, flopsPerSecond(power).replace(/\.0+ /, ' ')));
  }
  drawn.append(svg('text', { x: (left + right) / 2, y: height - 6, 'text-anchor': 'middle' }, 'operations a byte'));
  drawRoofs(drawn, model, place);
  drawPoints(drawn, model, place, say);
}

function drawRoofs(drawn, { memory, roofs, xs, ys }, { right, x, y }) {
  if (!memory) return;
  const [least, most] = [10 ** xs[0], 10 ** xs[1]];
  for (const { flops, name } of roofs) {
    const from = Math.min(Math.max(flops / memory, least), most);
    drawn.append(svg('line', { class: 'roof', x1: x(from), x2: right, y1: y(flops), y2: y(flops) }));
    drawn.append(svg('text', { class: 'roof', x: right - 4, y: y(flops) - 5, 'text-anchor': 'end' }, `${flopsPerSecond(flops)}, ${name}`));
  }
  // The memory's roof is cut where the drawing ends, and meets the highest of the others.
  const from = Math.max(least, 10 ** ys[0] / memory);
  const to = Math.min(most, (roofs[0]?.flops ?? 10 ** ys[1]) / memory);
  if (to <= from) return;
  drawn.append(svg('line', { class: 'roof', x1: x(from), x2: x(to), y1: y(from * memory), y2: y(to * memory) }));
  const at = Math.sqrt(from * to);
  drawn.append(svg('text', { class: 'roof', x: x(at) - 8, y: y(at * memory) - 4, 'text-anchor': 'end' }, `${scaledRate(memory, 'B/s')}, memory`));
}

function drawPoints(drawn, model, { width, x, y }, say) {
  const longest = Math.max(1, ...model.points.map((point) => point.total_ns));
  const taken = [];
  for (const point of model.points) {
    const [cx, cy] = [x(point.x), y(point.y)];
    const said = describePoint(model, point);
    const circle = svg('circle', { class: 'point', 'data-name': point.name.toLowerCase(), cx, cy, r: 4 + 9 * Math.sqrt(point.total_ns / longest), tabindex: '0', role: 'img', 'aria-label': said });
    circle.append(svg('title', {}, said));
    for (const event of ['focus', 'pointerenter']) circle.addEventListener(event, () => say(said));
    drawn.append(circle);
    const isRight = cx > width * 0.7;
    const spot = { from: isRight ? cx - 200 : cx, to: isRight ? cx : cx + 200, cy };
    const isFree = taken.every((other) => Math.abs(other.cy - cy) > 14 || other.to < spot.from || other.from > spot.to);
    if (taken.length >= NAMED || !isFree) continue;
    taken.push(spot);
    const name = point.name.length > 28 ? `${[...point.name.slice(0, 28)].slice(0, -1).join('')}…` : point.name;
    drawn.append(svg('text', { class: 'name', 'data-name': point.name.toLowerCase(), x: cx + (isRight ? -15 : 15), y: cy + 4, 'text-anchor': isRight ? 'end' : 'start' }, name));
  }
}
