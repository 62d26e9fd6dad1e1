// The tables of the report. Their figures are those of `warpline report --format json`, row by row.

const REPORT_COLUMNS = (() => {
  const text = (title, hint) => ({ title, hint, show: (value) => (value ? code(value) : '') });
  const number = (title, hint, show = (value) => count(value)) => ({ title, hint, show: (value, largest) => (value === null || value === undefined ? '–' : show(value, largest)), isNumber: true });
  const ns = (title, hint) => number(title, hint, timeOrZero);
  const share = (title, hint) => number(title, hint, withBar);
  const rate = (title, unit, hint) => number(title, hint, (value) => scaledRate(value, unit));
  const speed = (title, hint) => number(title, hint, (value) => `${digits(value / 1e9)} GB/s`);
  return {
    name: text('name'),
    range: text('range', 'the range of its innermost zone'),
    on: text('on'),
    thread: text('thread'),
    group: text('group', 'the process group, and its ranks'),
    device: text('device'),
    waited_for: text('waited for', 'the stream or thread that signalled'),
    count: number('count'),
    seen: number('ran', 'zones that ran, of which a sample was recorded'),
    failed: number('failed', 'ended with an error or a panic'),
    bounded: number('end not timed', 'the length is only a bound: in total and share (≤), and in no other figure'),
    bounded_steps: number('more steps', 'in which the length of a zone is only a bound: in no other figure'),
    total_ns: ns('total'),
    total_error_ns: ns('±', 'the standard error of the total'),
    self_ns: ns('self', 'without the zones within its zones'),
    share: share('share', 'of the time from the first zone to the last'),
    first_ns: ns('first call', 'a first zone that took more than ten times the median; it is in total and share only'),
    mean_ns: ns('mean', 'without a first call that is set apart'),
    min_ns: ns('min'),
    p50_ns: ns('p50', 'the median, within 1 %'),
    p99_ns: ns('p99', 'the 99th percentile, within 1 %'),
    max_ns: ns('max'),
    mean_launch_ns: ns('launch', 'the mean time of a launch on its thread'),
    steps: number('steps', 'in which it ran'),
    zones_per_step: number('zones a step', undefined, digits),
    left_out: number('left out'),
    cut: number('cut', 'by a stop or the end of the session'),
    dropped: number('dropped'),
    sized: number('sized', 'with a known size'),
    bytes: number('bytes', undefined, bytes),
    busbw_p50_bytes_per_s: speed('busbw p50', 'bus bandwidth as NCCL’s tests define it'),
    busbw_p99_bytes_per_s: speed('busbw p99'),
    bytes_per_s: rate('bytes', 'B/s', 'declared bytes by the time of the work'),
    bytes_share: share('of peak', 'of the memory’s peak'),
    flops_per_s: rate('operations', 'FLOP/s', 'declared operations by the time of the work'),
    flops_share: share('of peak', 'of the tensor cores’ peak with 16 bits or, if it was measured, of FP32 multiply-adds'),
    flops_per_byte: number('operations a byte', 'the arithmetic intensity', digits),
    held_share: share('share', 'of the device’s memory that the session knew of'),
    at: text('when', 'at the peak, or at the end'),
    hidden_share: share('hidden', 'the share of the time in which the device computed on another stream: ran kernels, or compute zones where no kernels are recorded'),
    streams: number('streams'),
    busy_ns: ns('busy'),
    waiting_ns: ns('waiting'),
    idle_ns: ns('idle', 'in no zone and in no wait'),
    not_recorded_ns: ns('not recorded', 'in no recorded zone and in no wait; others may have run'),
    allocated: number('allocations'),
    allocations: number('allocations'),
    freed: number('frees'),
    peak_bytes: number('peak', undefined, bytes),
    peak_at_ns: ns('peak at'),
    uncertainty_ns: ns('begins within ±'),
    bracket_ns: ns('added by events'),
    busy_bracket_ns: ns('behind queued work'),
  };
})();

const PLACES = {
  stream: { short: 'streams', long: 'on streams' },
  replay: { short: 'replays', long: 'in replays of graphs' },
  thread: { short: 'threads', long: 'on threads' },
};

const OF_RANGES = ['name', 'count', 'bounded', 'seen', 'failed', 'total_ns', 'total_error_ns', 'self_ns', 'share', 'first_ns', 'mean_ns', 'p50_ns', 'p99_ns', 'max_ns', 'mean_launch_ns'];
const OF_STEPS = ['name', 'steps', 'bounded_steps', 'zones_per_step', 'mean_ns', 'p50_ns', 'p99_ns', 'max_ns'];

/** In the order in which the page shows them: those of `isMain` above the drawings. */
const TABLES = [
  { id: 'ranges-stream', isMain: true, table: 'ranges', title: 'Ranges on streams', on: 'stream', columns: OF_RANGES, sortBy: 'total_ns' },
  { id: 'ranges-replay', isMain: true, table: 'ranges', title: 'Ranges in replays of graphs', on: 'replay', columns: OF_RANGES, sortBy: 'total_ns' },
  { id: 'ranges-thread', isMain: true, table: 'ranges', title: 'Ranges on threads', on: 'thread', columns: OF_RANGES, sortBy: 'total_ns' },
  { id: 'steps', table: 'steps', title: 'Steps', columns: ['name', 'count', 'left_out', 'cut', 'dropped', 'mean_ns', 'min_ns', 'p50_ns', 'p99_ns', 'max_ns'], sortBy: 'name' },
  { id: 'steps-stream', table: 'range_steps', title: 'Ranges in a step, on streams', on: 'stream', columns: OF_STEPS, sortBy: 'mean_ns', about: 'What each range took in a step in which it ran. A zone belongs to the step in which it was launched.' },
  { id: 'steps-thread', table: 'range_steps', title: 'Ranges in a step, on threads', on: 'thread', columns: OF_STEPS, sortBy: 'mean_ns' },
  { id: 'work', table: 'work', title: 'Declared work', columns: ['name', 'on', 'device', 'bytes_per_s', 'bytes_share', 'flops_per_s', 'flops_share', 'flops_per_byte'], sortBy: 'flops_per_s' },
  { id: 'streams', table: 'streams', title: 'Streams', columns: ['name', 'device', 'streams', 'busy_ns', 'waiting_ns', 'idle_ns', 'not_recorded_ns'], sortBy: 'busy_ns' },
  { id: 'stream-waits', table: 'stream_waits', title: 'Waits of streams', columns: ['name', 'waited_for', 'count', 'total_ns'], sortBy: 'total_ns' },
  { id: 'semaphores', table: 'semaphores', title: 'Semaphores', columns: ['name', 'count', 'total_ns'], sortBy: 'total_ns' },
  { id: 'collectives', table: 'collectives', title: 'Collectives', columns: ['name', 'group', 'count', 'bounded', 'sized', 'bytes', 'total_ns', 'busbw_p50_bytes_per_s', 'busbw_p99_bytes_per_s', 'hidden_share'], sortBy: 'total_ns' },
  { id: 'kernels', table: 'kernels', title: 'Kernels and copies', columns: ['name', 'range', 'count', 'total_ns', 'mean_ns', 'max_ns'], sortBy: 'total_ns' },
  { id: 'host-waits', table: 'host_waits', title: 'Waits of threads for the device', columns: ['name', 'thread', 'range', 'count', 'total_ns', 'mean_ns', 'max_ns'], sortBy: 'total_ns' },
  { id: 'path-parts', table: 'critical_path', title: 'Ranges on the critical path', columns: ['name', 'on', 'total_ns', 'share'], sortBy: 'total_ns' },
  { id: 'memory', table: 'memory', title: 'Device memory', columns: ['name', 'allocated', 'freed', 'bytes', 'peak_bytes', 'peak_at_ns'], sortBy: 'peak_bytes' },
  { id: 'memory-holders', table: 'memory_holders', title: 'Who held device memory', columns: ['name', 'device', 'at', 'bytes', 'held_share', 'allocations'], sortBy: 'bytes', about: 'The ranges in whose zones memory was allocated, or the names of allocations, at the peak of each device and at the end.' },
  { id: 'clocks', table: 'clocks', title: 'Clocks', columns: ['name', 'uncertainty_ns', 'bracket_ns', 'busy_bracket_ns'], sortBy: 'uncertainty_ns' },
];

/** A figure, with its sign if it is only a bound. */
function shown(row, key, show) {
  const bound = boundOf(row, key);
  if (bound !== undefined) return `≤${timeOrZero(bound)}`;
  const [sign, made] = [signOf(row, key), show(row[key])];
  if (sign === '') return made;
  if (typeof made === 'string') return sign + made;
  made.prepend(sign);
  return made;
}

/** A share with a bar, which is full for the largest share of the column. */
function withBar(share, largest) {
  const bar = element('i');
  bar.style.width = `${Math.min(100, Math.max(0, (100 * share) / largest))}%`;
  return element('span', {}, percent(share), element('span', { class: 'share', 'aria-hidden': 'true' }, bar));
}

/** The sign before a figure that is only a bound. */
function signOf(row, key) {
  const is = { total_ns: row.total_is_bound, share: row.total_is_bound, self_ns: row.self_is_bound, busy_ns: row.busy_is_bound, waiting_ns: row.waiting_is_bound };
  if (is[key]) return '≤';
  return row.rest_is_bound && (key === 'idle_ns' || key === 'not_recorded_ns') ? '≥' : '';
}

/** The bound that stands for a mean or a maximum of zones of which none is timed. */
function boundOf(row, key) {
  if (row[key] !== null || !(row.bounded > 0)) return undefined;
  return { mean_ns: row.bounded_total_ns / row.bounded, max_ns: row.bounded_max_ns }[key];
}

/** All tables that have rows; returns the functions that filter them. `pickRange` shows the histogram of a range. */
function makeTables(main, more, pickRange) {
  const filters = [];
  // What was cut from a table is said at the first of its sections.
  const isSaid = new Set();
  for (const { id, isMain, table, title, on, columns, sortBy, about } of TABLES) {
    const rows = (REPORT[table] ?? []).filter((row) => on === undefined || row.on === on);
    if (rows.length === 0) continue;
    // A column without a value for anything only takes room.
    const isNeeded = (key) => key === 'name' || rows.some((row) => (key === 'seen' ? row.seen > row.count : key === 'streams' ? row.streams > 1 : Boolean(row[key] ?? boundOf(row, key))));
    const made = columns.filter(isNeeded).map((key) => {
      const { title: head, hint, show, isNumber } = REPORT_COLUMNS[key];
      const largest = rows.reduce((most, row) => (typeof row[key] === 'number' ? Math.max(most, row[key]) : most), 0) || 1;
      return { key, title: head, hint, isNumber, value: (row) => row[key] ?? boundOf(row, key), show: (row) => shown(row, key, (value) => show(value, largest)) };
    });
    if (table === 'ranges' && pickRange) {
      made[0].show = (row) => {
        if (!HISTOGRAMS.has(`${row.on} ${row.name}`)) return code(row.name);
        const button = element('button', { type: 'button', title: 'Show its histogram' }, code(row.name));
        button.addEventListener('click', () => pickRange(row));
        return button;
      };
    }
    const section = element('section', { id, 'aria-labelledby': `${id}-title` }, element('h2', { id: `${id}-title` }, title));
    (isMain ? main : more).append(section);
    filters.push(makeTable(section, { about, columns: made, rows, sortBy, isDescending: sortBy !== 'name', leftOut: isSaid.has(table) ? 0 : DATA.left_out[table] }));
    isSaid.add(table);
  }
  return filters;
}
