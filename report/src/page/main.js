// Puts the page together.

function makePage() {
  makeVerdict();
  const charts = {};
  const pickRange = makeHistogram(byId('histogram'));
  const filters = makeTables(byId('tables'), byId('more'), pickRange);
  charts.timeline = makeTimeline(byId('timeline'));
  charts.icicle = makeIcicle(byId('icicle'));
  charts.path = makePath(byId('path'));
  const fadePoints = makeRoofline(byId('roofline'));
  makeAccount();
  const all = Object.values(charts).filter((chart) => chart !== undefined);

  // What a link leads to is seen below the search, which may take several lines.
  const bar = byId('search');
  new ResizeObserver(() => {
    const above = getComputedStyle(bar).position === 'sticky' ? bar.offsetHeight : 0;
    for (const section of document.querySelectorAll('main section')) section.style.scrollMarginTop = `${above + 8}px`;
  }).observe(bar);

  for (const section of document.querySelectorAll('main section[aria-labelledby]')) {
    byId('contents').append(element('a', { href: `#${section.id}` }, section.querySelector('h2').textContent));
  }

  const search = () => {
    const words = byId('query').value.toLowerCase().split(/\s+/).filter((word) => word !== '');
    const test = (text) => words.every((word) => text.includes(word));
    const rows = filters.reduce((sum, filter) => sum + filter(test), 0);
    all.forEach((chart) => chart.filter((name) => test(name.toLowerCase())));
    fadePoints?.(test);
    byId('found').textContent = words.length === 0 ? '' : plural(rows, 'row');
  };
  byId('query').addEventListener('input', search);
  byId('search').addEventListener('submit', (event) => event.preventDefault());
  document.addEventListener('keydown', (event) => {
    if (event.key !== '/' || event.target.matches('input, select, textarea') || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    byId('query').focus();
  });

  chooseColors(() => all.forEach((chart) => chart.style()));
  return charts;
}

const CHARTS = makePage();

// For tests of the page, and for whoever looks closer: what is drawn, in numbers. Points are of the window.
window.warplineReport = {
  rects: (chart) => {
    const shown = ({ name, lane, x, w, self, calls, isWait, all, least, uncertain, isUncertain }) => ({ name, lane, x, w, self, calls, isWait, all, least, uncertain, isUncertain });
    return CHARTS[chart].model.rects.map(shown);
  },
  rows: (chart) => CHARTS[chart].model.rows.map((row) => row.label),
  marks: (chart) => CHARTS[chart].model.marks,
  /** The roofline of the device that is shown at first, and the pixels of its points in the units of the drawing. */
  roofline() {
    const [model] = ROOFLINES;
    const { x, y } = rooflinePlace(model);
    return { ...model, points: model.points.map((point) => ({ ...point, cx: x(point.x), cy: y(point.y), roof: model.memory ? y(attainable(model, point.x)) : null })), decade: y(1) - y(10), wide: x(10) - x(1) };
  },
  links: (chart) => CHARTS[chart].model.links,
  view: (chart) => ({ ...CHARTS[chart].view, length: CHARTS[chart].model.length }),
  point(chart, at) {
    const { canvas, model, tops } = CHARTS[chart];
    const { left, top } = canvas.getBoundingClientRect();
    const rect = model.rects[at];
    return { x: left + CHARTS[chart].at(rect.x + rect.w / 2), y: top + tops[rect.lane] + LANE / 2 };
  },
  /** The color on the canvas at the middle of a rectangle, below its name. */
  color(chart, at) {
    const one = CHARTS[chart];
    one.draw();
    const rect = one.model.rects[at];
    const from = [one.at(rect.x + rect.w / 2), one.tops[rect.lane] + 1.5].map((place) => Math.floor(place * one.dpr));
    const pixel = element('canvas', { width: 1, height: 1 }).getContext('2d');
    pixel.drawImage(one.canvas, ...from, 1, 1, 0, 0, 1, 1);
    return [...pixel.getImageData(0, 0, 1, 1).data];
  },
};
