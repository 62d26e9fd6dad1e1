// The data of the page: the report as `--json` prints it, and the cells of the heat map.

const DATA = JSON.parse(byId('data').textContent);
const REPORT = DATA.report;

/** Bytes of base64. */
function decoded(text) {
  const raw = atob(text);
  const all = new Uint8Array(raw.length);
  for (let at = 0; at < raw.length; at += 1) all[at] = raw.charCodeAt(at);
  return all;
}

const NONE = 0x8000;
const DROPPED = 0x40;

/** The times of all codes, in ns: a sign, five bits of exponent and ten bits of mantissa, in µs. */
const TIMES = (() => {
  const times = new Float32Array(1 << 16);
  for (let code = 0; code < NONE; code += 1) {
    times[code] = (code & 0x3ff) * 2 ** (code >> 10) * 1000;
    times[code | NONE] = -times[code];
  }
  times[NONE] = NaN;
  return times;
})();

const codes = (text) => new Uint16Array(decoded(text).buffer);

/** Runs of first, last and stride as numbers. */
function numbers(runs) {
  const all = [];
  for (const [first, last, stride] of runs) {
    for (let number = first; number <= last; number += stride) all.push(number);
  }
  return all;
}

/** What can be shown in color. Own time is what a rank does itself: compute and idle. */
const METRICS = {
  beyond: {
    name: 'own time beyond peers',
    about:
      'Color: how much longer the own time of a rank in a step is than the median of its peers. Own time is compute and idle, that is the step '
      + 'without waiting for other ranks. Peers are the ranks that do the same work.',
    of: (cells, at) => TIMES[cells.beyond[at]],
  },
  waiting: {
    name: 'waiting and open communication',
    about: 'Color: the time of a step in which a rank communicates or waits, and computes nothing meanwhile. The rank that the others wait for waits least.',
    of: (cells, at) => TIMES[cells.waiting[at]],
  },
  compute: {
    name: 'compute',
    about: 'Color: the time of a step in which a device runs zones that are no collectives.',
    of: (cells, at) => TIMES[cells.compute[at]],
  },
  idle: {
    name: 'idle',
    about: 'Color: the time of a step in which a device has nothing to do and waits for nobody: input, or the host.',
    of: (cells, at) => TIMES[cells.idle[at]],
  },
  uncertain: {
    name: 'end not timed',
    about: 'Color: the time of a step in which a zone or a wait may have ended, because no event times its end. It is in no other part of the step.',
    // Without a column of its own it is 0 where there is a cell.
    of: (cells, at) => (cells.uncertain.length > 0 ? TIMES[cells.uncertain[at]] : 0 * TIMES[cells.compute[at]]),
  },
  wall: {
    name: 'step time',
    about: 'Color: the length of a step on a rank. Ranks that synchronize have the same; their own time tells them apart.',
    of: (cells, at) => TIMES[cells.compute[at]] + TIMES[cells.idle[at]] + TIMES[cells.waiting[at]] + METRICS.uncertain.of(cells, at),
  },
};

/** The cells with their ranks and steps; none if the report has none. */
function makeModel(map) {
  if (!map || map.ranks.length === 0 || map.steps.length === 0) return null;
  const ranks = numbers(map.ranks);
  const steps = numbers(map.steps);
  const cells = {};
  for (const key of ['beyond', 'compute', 'idle', 'waiting', 'uncertain']) cells[key] = codes(map.cells[key]);
  cells.flags = decoded(map.cells.flags);
  const rankInBlock = codes(map.cells.rank_in_block);
  const stepInBlock = codes(map.cells.step_in_block);
  const rows = Math.ceil(ranks.length / map.rank_block);
  const columns = Math.ceil(steps.length / map.step_block);
  const placeOfRank = new Map(ranks.map((rank, place) => [rank, place]));
  const placeOfStep = new Map(steps.map((step, place) => [step, place]));
  const known = {};
  const range = (all, block, at) => {
    const [first, last] = [all[at * block], all[Math.min((at + 1) * block, all.length) - 1]];
    return first === last ? `${first}` : `${first}–${last}`;
  };

  return {
    rows,
    columns,
    ranks,
    steps,
    rankBlock: map.rank_block,
    stepBlock: map.step_block,
    oneIn: map.one_in,
    wallNs: map.wall_ns,
    meanNs: map.mean_ns,
    hasUncertain: cells.uncertain.length > 0,
    hostOf: (rank) => map.hosts[map.host_of[placeOfRank.get(rank)]] ?? '',
    rowOf: (rank) => (placeOfRank.has(rank) ? Math.floor(placeOfRank.get(rank) / map.rank_block) : undefined),
    columnOf: (step) => (placeOfStep.has(step) ? Math.floor(placeOfStep.get(step) / map.step_block) : undefined),
    ranksOf: (row) => ranks.slice(row * map.rank_block, (row + 1) * map.rank_block),
    rowLabel: (row) => range(ranks, map.rank_block, row),
    columnLabel: (column) => range(steps, map.step_block, column),

    /** The values of a metric, in ns, row by row. */
    values(metric) {
      known[metric] ??= Float32Array.from(cells.beyond, (_, at) => METRICS[metric].of(cells, at));
      return known[metric];
    },

    /** All that is known of a cell; undefined where no rank has written. */
    cell(row, column) {
      const at = row * columns + column;
      if (cells.compute[at] === NONE || cells.compute[at] === undefined) return undefined;
      const all = { rank: ranks[row * map.rank_block + (rankInBlock[at] ?? 0)], step: steps[column * map.step_block + (stepInBlock[at] ?? 0)] };
      for (const [name, metric] of Object.entries(METRICS)) all[name] = metric.of(cells, at);
      all.own = all.compute + all.idle;
      all.errNs = 2 ** (cells.flags[at] & 0x3f);
      all.isIncomplete = (cells.flags[at] & DROPPED) !== 0;
      all.host = map.hosts[map.host_of[placeOfRank.get(all.rank)]] ?? '';
      return all;
    },
  };
}

const MODEL = makeModel(DATA.heat_map);

/** The ranks that the report names, with why. */
const NAMED = new Map();
for (const late of REPORT.late) NAMED.set(late.rank, 'late');
for (const slow of REPORT.slow) NAMED.set(slow.rank, NAMED.has(slow.rank) ? 'late and slow' : 'slow');

/** The steps of a report in which somebody was late, by step. */
const BLAME = new Map();
for (const blamed of REPORT.blame) BLAME.set(blamed.step, [...(BLAME.get(blamed.step) ?? []), blamed]);

const CAUSES = {
  device: 'its device worked longer',
  idle: 'its device had nothing to do',
  launch: 'its launches took longer',
  unknown: 'its own steps do not show why',
};

/** A test of ranks: numbers, ranges, and parts of host names, separated by commas; all if there are none. */
function rankFilter(text) {
  const parts = text.split(',').map((part) => part.trim()).filter((part) => part !== '');
  const tests = parts.map((part) => {
    const bounds = /^(\d+)(?:\s*[-–]\s*(\d+))?$/.exec(part);
    if (bounds) {
      const [first, last] = [Number(bounds[1]), Number(bounds[2] ?? bounds[1])];
      return (rank) => first <= rank && rank <= last;
    }
    return (_, host) => host.toLowerCase().includes(part.toLowerCase());
  });
  return (rank, host) => tests.length === 0 || tests.some((test) => test(rank, host));
}
