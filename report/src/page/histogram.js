// The histogram of a range: how long its zones took, on a logarithmic axis.

const HISTOGRAMS = new Map((DATA.details.histograms?.ranges ?? []).filter((one) => one.bars.length > 0).map((one) => [`${one.on} ${one.name}`, one.bars]));

// Its address, which the page has without naming it.
const SVG = byId('bars').namespaceURI;

function svg(name, attributes, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/** Puts the section together; returns a function that shows a range. */
function makeHistogram(section) {
  const ranges = (REPORT.ranges ?? []).filter((range) => HISTOGRAMS.has(`${range.on} ${range.name}`));
  if (ranges.length === 0) {
    section.remove();
    return undefined;
  }
  const picker = element('select', { 'aria-label': 'Range' }, ...ranges.map((range, at) => element('option', { value: String(at) }, `${shortened(range.name)} (${PLACES[range.on].short})`)));
  const left = DATA.details.histograms.left_out;
  byId('bars').before(element('div', { class: 'controls' }, element('label', {}, 'Range ', picker)));
  byId('bars').after(element('p', { class: 'note' }, 'Height: the number of zones. The axis of times is logarithmic. Percentiles are within 1 %.'));
  if (left > 0) section.append(element('p', { class: 'note' }, `The page has the histograms of the ${count(HISTOGRAMS.size)} ranges with the longest total times; ${plural(left, 'more range')} ${left === 1 ? 'has' : 'have'} none.`));
  const draw = () => drawHistogram(ranges[Number(picker.value)]);
  picker.addEventListener('change', draw);
  draw();
  return (range) => {
    const at = ranges.indexOf(range);
    if (at < 0) return false;
    picker.value = String(at);
    draw();
    section.scrollIntoView({ block: 'start' });
    picker.focus({ preventScroll: true });
    return true;
  };
}

function drawHistogram(range) {
  const bars = HISTOGRAMS.get(`${range.on} ${range.name}`);
  const [width, height, left, bottom, top] = [900, 230, 52, 34, 30];
  const most = Math.max(1, ...bars.map((bar) => bar[2]));
  const [least, longest] = [Math.max(1, bars[0][0]), Math.max(2, bars.at(-1)[1])];
  const x = (ns) => left + (Math.log(Math.max(ns, least) / least) / Math.log(longest / least)) * (width - left - 10);
  const y = (zones) => height - bottom - (zones / most) * (height - bottom - top);
  const drawn = byId('bars');
  drawn.replaceChildren();
  drawn.setAttribute('viewBox', `0 0 ${width} ${height}`);
  drawn.setAttribute('aria-label', `Histogram of ${shortened(range.name)}`);
  drawn.append(svg('line', { x1: left, x2: width - 10, y1: height - bottom, y2: height - bottom }));
  for (const zones of [most, Math.round(most / 2)].filter((zones) => zones > 0)) {
    drawn.append(svg('text', { x: left - 6, y: y(zones) + 4, 'text-anchor': 'end' }, count(zones)));
  }
  for (const [from, to, zones] of bars) {
    if (zones === 0) continue;
    const high = Math.max(1, y(0) - y(zones));
    const bar = svg('rect', { class: 'bar', x: x(from), y: y(0) - high, width: Math.max(1, x(to) - x(from) - 1), height: high });
    bar.append(svg('title', {}, `${plural(zones, 'zone')} of ${time(from)} to ${time(to)}`));
    drawn.append(bar);
  }
  for (const [at, part] of [0, 0.25, 0.5, 0.75, 1].entries()) {
    const ns = least * (longest / least) ** part;
    drawn.append(svg('text', { x: x(ns), y: height - bottom + 16, 'text-anchor': at === 0 ? 'start' : at === 4 ? 'end' : 'middle' }, time(ns)));
  }
  const isNear = x(range.p99_ns) - x(range.p50_ns) < 130;
  for (const [name, ns, row] of [['p50', range.p50_ns, 0], ['p99', range.p99_ns, isNear ? 1 : 0]]) {
    const isRight = x(ns) > width - 130;
    drawn.append(svg('line', { class: 'at', x1: x(ns), x2: x(ns), y1: 4 + 13 * row, y2: height - bottom }));
    drawn.append(svg('text', { class: 'at', x: x(ns) + (isRight ? -4 : 4), y: 12 + 13 * row, 'text-anchor': isRight ? 'end' : 'start' }, `${name} ${time(ns)}`));
  }
  const timed = range.count - (range.bounded ?? 0);
  const bounded = timed < range.count ? ` The ends of ${plural(range.count - timed, 'more zone')} are not timed: they are not in it.` : '';
  const first = range.first_ns === null ? '' : ` The first call took ${time(range.first_ns)} and is not in it.`;
  byId('range').replaceChildren(
    code(range.name),
    ` ${PLACES[range.on].long}: ${plural(timed, 'zone')}, ${time(range.min_ns)} to ${time(range.max_ns)}.${first}${bounded}`,
  );
}
