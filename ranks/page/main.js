// Puts the page together, and keeps its state in the fragment of the address, so that a link shows what its sender saw.

const state = { step: undefined, rank: undefined, color: 'beyond', sort: 'rank', ranks: '', named: false };

const SORTS = {
  rank: { name: 'rank', key: undefined },
  host: { name: 'host', key: undefined },
  worst: { name: 'furthest beyond peers', key: (values, begin, end) => values.subarray(begin, end).reduce((most, value) => (value > most ? value : most), -Infinity) },
  mean: {
    name: 'beyond peers on average',
    key(values, begin, end) {
      let [sum, known] = [0, 0];
      for (let at = begin; at < end; at += 1) {
        if (values[at] === values[at]) [sum, known] = [sum + values[at], known + 1];
      }
      return known === 0 ? -Infinity : sum / known;
    },
  },
};

let map;
let filterTables = () => {};

/** The rows to show, in order. */
function rowsToShow() {
  const passes = filterTest();
  const rows = [];
  for (let row = 0; row < MODEL.rows; row += 1) if (MODEL.ranksOf(row).some(passes)) rows.push(row);
  const key = SORTS[state.sort].key;
  if (key) {
    const values = MODEL.values('beyond');
    const keys = new Map(rows.map((row) => [row, key(values, row * MODEL.columns, (row + 1) * MODEL.columns)]));
    rows.sort((a, b) => keys.get(b) - keys.get(a) || a - b);
  } else if (state.sort === 'host') {
    const host = (row) => MODEL.hostOf(MODEL.ranksOf(row)[0]);
    rows.sort((a, b) => host(a).localeCompare(host(b), 'en', { numeric: true }) || a - b);
  }
  return rows;
}

function filterTest() {
  const test = rankFilter(state.ranks);
  return (rank) => test(rank, hostOf(rank)) && (!state.named || NAMED.has(rank));
}

/** Shows the map as the state says. */
function update() {
  filterTables(filterTest());
  if (!MODEL) return;
  const values = MODEL.values(state.color);
  const scale = makeScale(state.color, values);
  const rows = rowsToShow();
  map.show(state.color, values, scale, rows);
  byId('nothing').hidden = rows.length > 0;
  byId('meaning').textContent = METRICS[state.color].about;
  showLegend(byId('legend'), state.color, scale);
}

/** What a cell is, in lines. */
function describe({ row, column }) {
  const cell = MODEL.cell(row, column);
  if (!cell) return [`rank ${MODEL.rowLabel(row)}, step ${MODEL.columnLabel(column)}`, 'nothing was written: the rank did not run, or its window is missing'];
  const lines = [`rank ${cell.rank}${cell.host === '' ? '' : ` on ${cell.host}`}, step ${cell.step}`];
  if (MODEL.rankBlock > 1 || MODEL.stepBlock > 1) lines.push(`the worst of ranks ${MODEL.rowLabel(row)} and steps ${MODEL.columnLabel(column)}`);
  const share = cell.own > cell.beyond && cell.beyond !== 0 ? ` (${cell.beyond > 0 ? '+' : ''}${digits((100 * cell.beyond) / (cell.own - cell.beyond))} %)` : '';
  const beside = Number.isNaN(cell.beyond) ? 'compared with no rank' : `${time(Math.abs(cell.beyond))} ${cell.beyond < 0 ? 'below' : 'beyond'} its peers${share}`;
  lines.push(`own time ${time(cell.own)}: ${beside}`);
  lines.push(`compute ${time(cell.compute)} · idle ${time(cell.idle)} · waiting ${time(cell.waiting)}${cell.uncertain > 0 ? ` · end not timed ${time(cell.uncertain)}` : ''}`);
  lines.push(`step ${time(cell.wall)}; times are exact to 0.1 % and ${time(cell.errNs)}`);
  if (cell.isIncomplete) lines.push('zones were dropped in this step: its times are too short');
  for (const one of (BLAME.get(cell.step) ?? []).filter((one) => one.rank === cell.rank)) {
    lines.push(`late by ${time(one.late_ns)}${plusMinus(one.err_ns)}: ${CAUSES[one.cause]}${one.stage === '' ? '' : ` in ${one.stage}`}`);
  }
  const mean = MODEL.meanNs[row];
  if (mean !== null) lines.push(`on average ${time(Math.abs(mean))} ${mean < 0 ? 'below' : 'beyond'} its peers in a step`);
  if (NAMED.has(cell.rank)) lines.push(`the report names this rank: ${NAMED.get(cell.rank)}`);
  return lines;
}

/** Selects a cell by row and column, or nothing. */
function select(place) {
  const cell = place && MODEL.cell(place.row, place.column);
  state.step = place && (cell?.step ?? MODEL.steps[place.column * MODEL.stepBlock]);
  state.rank = place && (cell?.rank ?? MODEL.ranksOf(place.row)[0]);
  map.select(place);
  showStep(place);
  byId('cell').textContent = place ? describe(place).join('. ') : '';
  remember();
}

/** The state as the fragment of the address. */
function remember() {
  const parts = new URLSearchParams();
  if (state.step !== undefined) parts.set('step', state.step);
  if (state.rank !== undefined) parts.set('rank', state.rank);
  if (state.color !== 'beyond') parts.set('color', state.color);
  if (state.sort !== 'rank') parts.set('sort', state.sort);
  if (state.ranks !== '') parts.set('ranks', state.ranks);
  if (state.named) parts.set('named', '1');
  history.replaceState(null, '', parts.size > 0 ? `#${parts}` : location.pathname + location.search);
}

/** Takes the state from the fragment: what it does not say stays. Returns whether it names a step. */
function recall() {
  const parts = new URLSearchParams(location.hash.slice(1));
  if (Object.hasOwn(METRICS, parts.get('color')) && (parts.get('color') !== 'uncertain' || MODEL?.hasUncertain)) state.color = parts.get('color');
  if (Object.hasOwn(SORTS, parts.get('sort'))) state.sort = parts.get('sort');
  if (parts.has('ranks')) state.ranks = parts.get('ranks');
  if (parts.has('named')) state.named = parts.get('named') === '1';
  byId('color').value = state.color;
  byId('sort').value = state.sort;
  byId('filter').value = state.ranks;
  byId('named').checked = state.named;
  const number = (key) => (/^\d+$/.test(parts.get(key) ?? '') ? Number(parts.get(key)) : undefined);
  return { step: number('step'), rank: number('rank') };
}

/** Selects what a link names: a step, and the rank that matters most in it where it names none. */
function goTo({ step, rank }) {
  if (!MODEL || step === undefined) return;
  const column = MODEL.columnOf(step);
  if (column === undefined) {
    select(undefined);
    showOtherStep(step);
    return;
  }
  const row = MODEL.rowOf(rank ?? BLAME.get(step)?.[0]?.rank) ?? worstRow(column);
  select({ row, column });
}

function worstRow(column) {
  const values = MODEL.values('beyond');
  let worst = 0;
  for (let row = 1; row < MODEL.rows; row += 1) {
    if (!(values[worst * MODEL.columns + column] >= values[row * MODEL.columns + column])) worst = row;
  }
  return worst;
}

/** The next step with blame, before or behind the selected one. */
function nextBlamed(direction) {
  const steps = [...BLAME.keys()].sort((a, b) => a - b).filter((step) => MODEL.columnOf(step) !== undefined);
  const now = state.step ?? (direction > 0 ? -Infinity : Infinity);
  const found = direction > 0 ? steps.find((step) => step > now) : steps.findLast((step) => step < now);
  if (found !== undefined) goTo({ step: found });
}

/** Whether the report names a rank, or a group with a slow link. */
const isFinding = () => NAMED.size > 0 || REPORT.links.length > 0 || REPORT.differs.length > 0;

function makeVerdict() {
  const { size, clocks } = REPORT;
  document.title = `${REPORT.verdict[0]} – run ${REPORT.run}`;
  byId('run').textContent = REPORT.run;
  byId('facts').textContent = [
    plural(size.ranks, 'rank'),
    plural(size.hosts, 'host'),
    `${plural(size.steps, 'step')}${size.steps > 0 ? ` of ${time(size.step_ns)}` : ''}`,
    `${count(size.collectives_judged)} collectives judged of the ${count(size.collectives_begun)} calls that ranks began`,
    clocks.hosts > 1 ? `clocks known to ±${time(clocks.worst_err_ns)}` : 'one clock',
  ].join(' · ');
  const list = byId('verdict').querySelector('ul');
  byId('verdict').classList.toggle('named', isFinding());
  byId('verdict').classList.toggle('unjudged', !isFinding() && !REPORT.is_judged);
  for (const sentence of REPORT.verdict) list.append(sentenceOf(sentence));
  const more = REPORT.late.length + REPORT.slow.length - REPORT.verdict.length;
  if (NAMED.size > 0 && more > 0) list.append(element('li', { class: 'more' }, `and ${plural(more, 'more finding')} in the tables below`));
  byId('made').textContent = `Made by ${DATA.program}. Everything is in this file; it makes no requests.`;
}

/** A sentence of the verdict, with a link to the step to look at. */
function sentenceOf(sentence) {
  const parts = sentence.replaceAll(' +- ', ' ± ').split(/`([^`]*)`/);
  const item = element('li', {}, ...parts.map((part, at) => (at % 2 === 1 ? code(part) : part)));
  const rank = Number(/^ranks? (\d+)/.exec(sentence)?.[1] ?? -1);
  const late = REPORT.late.find((one) => one.rank === rank);
  const slow = REPORT.slow.find((one) => one.rank === rank);
  const step = sentence.includes('slow') ? slow?.since_step : late?.worst_step;
  if (MODEL && step !== undefined) {
    item.append(' ', element('a', { href: `#step=${step}&rank=${rank}` }, `show step ${step}`));
  }
  return item;
}

function makeOmitted() {
  const section = byId('omitted');
  const items = [...REPORT.not_judged, ...REPORT.left_out.map((one) => `${one.file}: ${one.why}`)];
  if (items.length === 0) section.append(element('p', {}, 'Nothing: all that the ranks wrote was read and judged.'));
  else section.append(element('ul', {}, ...items.map((item) => element('li', {}, item))));
}

function makeControls() {
  const metrics = Object.entries(METRICS).filter(([key]) => key !== 'uncertain' || MODEL?.hasUncertain);
  for (const [key, metric] of metrics) byId('color').append(element('option', { value: key }, metric.name));
  for (const [key, sort] of Object.entries(SORTS)) byId('sort').append(element('option', { value: key }, sort.name));
  const change = (id, event, act) =>
    byId(id).addEventListener(event, () => {
      act(byId(id));
      update();
      remember();
    });
  change('color', 'change', (input) => (state.color = input.value));
  change('sort', 'change', (input) => (state.sort = input.value));
  change('filter', 'input', (input) => (state.ranks = input.value.trim()));
  change('named', 'change', (input) => (state.named = input.checked));
  byId('controls').addEventListener('submit', (event) => event.preventDefault());
  byId('go').addEventListener('change', () => byId('go').value !== '' && goTo({ step: Number(byId('go').value) }));
  byId('zoom-in').addEventListener('click', () => map.zoom(1 / 1.5));
  byId('zoom-out').addEventListener('click', () => map.zoom(1.5));
  byId('reset').addEventListener('click', () => map.reset());
  document.addEventListener('keydown', (event) => {
    if (event.target.matches('input, select, textarea') || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === 'n') nextBlamed(1);
    else if (event.key === 'p') nextBlamed(-1);
  });
  chooseColors(update);
}

function sayWhatIsMerged() {
  const parts = [];
  const each = [];
  if (MODEL.rankBlock > 1) each.push(`${MODEL.rankBlock} ranks`);
  if (MODEL.stepBlock > 1) each.push(`${MODEL.stepBlock} steps`);
  if (each.length > 0) parts.push(`A cell stands for ${each.join(' and ')}, and shows the one that is furthest beyond its peers.`);
  if (MODEL.oneIn > 1) parts.push(`Sampled: the map has one in ${MODEL.oneIn} steps. The tables below are of all steps.`);
  byId('merged').hidden = parts.length === 0;
  byId('merged').textContent = parts.join(' ');
}

makeVerdict();
filterTables = makeTables();
makeOmitted();
makeControls();
if (MODEL) {
  map = new HeatMap(byId('canvas'), byId('tip'), MODEL, { select, describe, first: () => ({ row: worstRow(0), column: 0 }) });
  sayWhatIsMerged();
} else {
  byId('map').replaceChildren(element('h2', {}, 'Ranks and steps'), element('p', {}, 'No step was written: mark steps in the program to see them here.'));
}
const begin = MODEL ? recall() : {};
update();
goTo(begin);
window.addEventListener('hashchange', () => {
  const target = MODEL ? recall() : {};
  update();
  goTo(target);
  byId('map').scrollIntoView({ block: 'start' });
});

// For tests of the page, and for whoever looks closer: what is drawn, in numbers. Ranks and steps are those of the job; points are
// of the window.
window.warplineRanks = {
  cell: (rank, step) => MODEL.cell(MODEL.rowOf(rank), MODEL.columnOf(step)),
  point(rank, step) {
    const point = map.point(MODEL.rowOf(rank), MODEL.columnOf(step));
    const { left, top } = map.canvas.getBoundingClientRect();
    return point && { x: left + point.x, y: top + point.y };
  },
  /** The color on the canvas, as red, green, blue and opacity. */
  color(rank, step) {
    map.draw();
    const point = map.point(MODEL.rowOf(rank), MODEL.columnOf(step));
    const pixel = element('canvas', { width: 1, height: 1 }).getContext('2d');
    pixel.drawImage(map.canvas, Math.floor(point.x * map.dpr), Math.floor(point.y * map.dpr), 1, 1, 0, 0, 1, 1);
    return [...pixel.getImageData(0, 0, 1, 1).data];
  },
  neutral: () => [...new Uint8Array(Uint32Array.of(map.scale.neutral).buffer)],
  order: () => map.order.map((row) => MODEL.rowLabel(row)),
  strip: () => ({ ...map.strip }),
  meanOf: (rank) => MODEL.meanNs[MODEL.rowOf(rank)],
  /** The color of the bar of a rank's mean, as red, green, blue and opacity. */
  meanColor(rank) {
    map.draw();
    const { x, w } = map.plot;
    const y = map.point(MODEL.rowOf(rank), 0).y;
    const pixel = element('canvas', { width: 1, height: 1 }).getContext('2d');
    pixel.drawImage(map.canvas, Math.floor((x + w + 10) * map.dpr), Math.floor(y * map.dpr), 1, 1, 0, 0, 1, 1);
    return [...pixel.getImageData(0, 0, 1, 1).data];
  },
  scale: () => ({ low: map.scale.low, high: map.scale.high }),
  zoom: (factor, point) => map.zoom(factor, point),
  pan: (x, y) => map.pan(x, y),
  view: () => ({ ...map.view }),
  counts: () => ({ ...map.counts }),
};
