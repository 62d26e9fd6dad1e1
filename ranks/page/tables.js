// Tables that are sorted by a click on a column, and filtered by rank.

/** Rows that a table shows at first. */
const SHOWN = 30;

/**
 * Puts a table into a section, and returns a function that filters it by a test of rank and host.
 *
 * A column has a `title`, perhaps `hint`, and functions of a row: `value` to sort by, `show` for a text or an element. `isNumber` aligns it.
 * `rankOf` gives the rank of a row, where it has one.
 */
function makeTable(section, { about, columns, rows, rankOf, none, sortBy, isDescending = false }) {
  if (about) section.append(element('p', { class: 'note' }, about));
  if (rows.length === 0) {
    section.append(element('p', {}, none));
    return () => {};
  }
  let sort = sortBy;
  let descending = isDescending;
  let isAll = false;
  let passes = () => true;
  const body = element('tbody');
  const heads = columns.map((column) => {
    const button = element('button', { type: 'button', title: column.hint }, column.title);
    button.addEventListener('click', () => {
      descending = sort === column.title ? !descending : Boolean(column.isNumber);
      sort = column.title;
      draw();
    });
    return element('th', { scope: 'col', class: column.isNumber ? 'number' : undefined }, button);
  });
  const table = element('table', {}, element('thead', {}, element('tr', {}, ...heads)), body);
  const rest = element('p', { class: 'note' });
  section.append(element('div', { class: 'scroll' }, table), rest);

  function draw() {
    const by = columns.find((column) => column.title === sort);
    const sign = descending ? -1 : 1;
    const compare = (a, b) => {
      const [one, other] = [by.value(a), by.value(b)];
      // What is unknown comes last.
      if (one === null || other === null) return (one === null) - (other === null);
      return sign * (typeof one === 'string' ? one.localeCompare(other, 'en', { numeric: true }) : one - other);
    };
    const seen = rows.filter((row) => passes(row));
    if (by) seen.sort(compare);
    columns.forEach((column, at) => {
      if (column.title === sort) heads[at].setAttribute('aria-sort', descending ? 'descending' : 'ascending');
      else heads[at].removeAttribute('aria-sort');
    });
    const shown = isAll ? seen : seen.slice(0, SHOWN);
    const cell = (row, column) => element('td', { class: column.isNumber ? 'number' : undefined }, (column.show ?? column.value)(row) ?? '');
    body.replaceChildren(...shown.map((row) => element('tr', {}, ...columns.map((column) => cell(row, column)))));
    rest.replaceChildren();
    if (seen.length < rows.length) rest.append(`${plural(rows.length - seen.length, 'row')} filtered out. `);
    if (shown.length < seen.length) {
      const more = element('button', { type: 'button' }, `show all ${count(seen.length)}`);
      more.addEventListener('click', () => {
        isAll = true;
        draw();
      });
      rest.append(`${count(shown.length)} of ${count(seen.length)} rows; `, more);
    }
  }

  draw();
  return (test) => {
    passes = (row) => rankOf === undefined || test(rankOf(row));
    draw();
  };
}

const stepLink = (step, rank) => element('a', { href: `#step=${step}&rank=${rank}` }, String(step));
const hostOf = (rank) => MODEL?.hostOf(rank) ?? '';
const plusMinus = (ns) => (ns > 0 ? ` ± ${time(ns)}` : '');
const code = (text) => element('code', {}, text);

/** All tables; returns a function that filters them. */
function makeTables() {
  const number = (title, value, show, hint) => ({ title, value, show, hint, isNumber: true });
  const text = (title, value, show, hint) => ({ title, value, show, hint });
  const host = (row) => (row.host ?? hostOf(row.rank)) || '';
  const rank = number('rank', (row) => row.rank, (row) => String(row.rank));
  const rankOf = (row) => row.rank;
  const areCorrected = REPORT.clocks.hosts > 1 ? ' Times of different hosts are corrected by the clocks below; ± is the error that this leaves.' : '';
  const filters = [];
  const add = (id, table) => filters.push(makeTable(byId(id), table));

  add('late', {
    about: `Ranks for which others waited, again and again or for long, most costly first.${areCorrected}`,
    none: REPORT.is_judged ? 'No rank was late.' : 'Not judged.',
    rows: REPORT.late,
    rankOf,
    sortBy: 'of the run',
    isDescending: true,
    columns: [
      rank,
      text('host', host),
      number('steps', (row) => row.steps, (row) => count(row.steps), 'in how many steps it was late'),
      number('first', (row) => row.first_step, (row) => stepLink(row.first_step, row.rank), 'the first such step'),
      number('last', (row) => row.last_step, (row) => stepLink(row.last_step, row.rank), 'the last such step'),
      number('median', (row) => row.median_ns, (row) => time(row.median_ns), 'by how much, in the median of these steps'),
      number('worst', (row) => row.worst_ns, (row) => `${time(row.worst_ns)}${plusMinus(row.err_ns)}`, 'by how much at worst'),
      number('in step', (row) => row.worst_step, (row) => stepLink(row.worst_step, row.rank), 'the worst step'),
      number('of the run', (row) => row.share, (row) => percent(row.share), 'all its lateness, of the time of the run'),
      text('why', (row) => CAUSES[row.cause]),
      text('range', (row) => row.stage, (row) => (row.stage === '' ? '' : code(row.stage)), 'the range in which it took longer'),
    ],
  });

  add('slow', {
    about: 'Ranks whose device works longer for a step than those of their peers, the ranks that do the same work, up to the end of the run.',
    none: REPORT.is_judged ? 'No device is slow.' : 'Not judged.',
    rows: REPORT.slow,
    rankOf,
    sortBy: 'more',
    isDescending: true,
    columns: [
      rank,
      text('host', host),
      number('since step', (row) => row.since_step, (row) => stepLink(row.since_step, row.rank)),
      number('more', (row) => row.share, (row) => percent(row.share), 'than the median of its peers, since that step'),
      number('a step', (row) => row.more_ns, (row) => time(row.more_ns), 'how much longer its device works for a step'),
    ],
  });

  add('blame', {
    about: `The steps in which a rank of the first table took longer itself than its peers, with the collective to which it came latest. Steps that follow each other and are alike are one row, with their median.${areCorrected}`,
    none: 'No step is blamed on a rank.',
    rows: alikeSteps(REPORT.blame),
    rankOf,
    sortBy: 'step',
    columns: [
      number('step', (row) => row.step, (row) => (row.last === row.step ? stepLink(row.step, row.rank) : element('span', {}, stepLink(row.step, row.rank), '–', stepLink(row.last, row.rank)))),
      rank,
      text('host', host),
      number('late', (row) => row.late_ns, (row) => `${time(row.late_ns)}${plusMinus(row.err_ns)}`),
      text('why', (row) => CAUSES[row.cause]),
      text('range', (row) => row.stage, (row) => (row.stage === '' ? '' : code(row.stage))),
      text('the others waited', (row) => row.chain.length, (row) => chainText(row.chain), 'in the collective to which it came latest'),
    ],
  });

  const events = REPORT.events;
  add('events', {
    about: events.length < REPORT.events_in_all
      ? `The ${count(events.length)} largest of ${count(REPORT.events_in_all)}. They are those of the ranks that are named.`
      : 'They are those of the ranks that are named.',
    none: 'No arrival stands out.',
    rows: events,
    rankOf,
    sortBy: 'late',
    isDescending: true,
    columns: [
      text('operation', (row) => row.kind),
      text('group', (row) => row.comm, (row) => code(row.comm)),
      number('number', (row) => row.seq, (row) => String(row.seq), 'of the collective in its group'),
      { ...rank, title: 'last rank' },
      text('host', host),
      number('late', (row) => row.late_ns, (row) => `${time(row.late_ns)}${plusMinus(row.err_ns)}`, 'after the others, on average'),
      number('after the last but one', (row) => row.margin_ns, (row) => time(row.margin_ns)),
      number('ranks', (row) => row.ranks, (row) => count(row.ranks), 'that were judged'),
    ],
  });

  add('bandwidth', {
    about: 'Of the last rank to come, so without waiting. Bus bandwidth as NCCL’s tests define it; collectives that sampling left out are not in it.',
    none: 'No collective with a known size was judged.',
    rows: REPORT.bandwidth,
    sortBy: 'operation',
    columns: [
      text('operation', (row) => row.kind),
      number('ranks', (row) => row.ranks, (row) => count(row.ranks), 'in the group'),
      number('size', (row) => row.bytes, (row) => bytes(row.bytes)),
      number('calls', (row) => row.calls, (row) => count(row.calls)),
      number('least GB/s', (row) => row.least, (row) => digits(row.least)),
      number('mean GB/s', (row) => row.mean, (row) => digits(row.mean)),
      number('most GB/s', (row) => row.most, (row) => digits(row.most)),
    ],
  });

  const clocks = REPORT.clocks;
  add('clocks', {
    about:
      'How far the clock of each host is ahead of another one. The error of the estimate has 30 µs for hosts that leave collectives in a fixed order. The certified error cannot be wrong '
      + 'as long as two clocks drift apart no faster than --max-drift-ppm says, 500 ppm by default.',
    none: clocks.hosts > 1 ? 'No host met another one in a collective: nothing compares their clocks.' : 'All ranks share one clock.',
    rows: clocks.by_host,
    sortBy: 'estimate ±',
    isDescending: true,
    columns: [
      text('host', (row) => row.host),
      text('beside', (row) => row.beside),
      number('ahead by', (row) => row.offset_ns, (row) => (row.host === row.beside ? 'the reference' : time(row.offset_ns)), 'on average'),
      number('drift, ppm', (row) => row.drift_ppm, (row) => (row.host === row.beside ? '' : digits(row.drift_ppm)), 'how much faster it runs, in millionths'),
      number('estimate ±', (row) => row.err_ns, (row) => (row.host === row.beside ? '' : time(row.err_ns)), 'in the worst minute'),
      number('certified ±', (row) => row.certified_ns, (row) => (row.host === row.beside ? '' : row.certified_ns === null ? 'not certified' : time(row.certified_ns)), 'half of the certified interval, in the worst minute'),
      number('minutes', (row) => row.minutes, (row) => count(row.minutes)),
      number('meetings', (row) => row.meetings, (row) => count(row.meetings), 'collectives in which it met other hosts'),
      text('bounds', (row) => (row.is_inconsistent ? 'contradict each other' : 'agree'), (row) =>
        element('span', { class: row.is_inconsistent ? 'bad' : undefined }, row.is_inconsistent ? 'contradict each other' : 'agree')),
    ],
  });
  if (clocks.apart.length > 1) {
    byId('clocks').append(element('p', { class: 'warn' }, `Groups of hosts that never met, by their first host: ${clocks.apart.join(', ')}.`));
  }
  return (test) => filters.forEach((filter) => filter(test));
}

/** Steps of one rank that follow each other, for one cause in one range and by about as much, are one row: their median, and the chain of that step. */
function alikeSteps(blame) {
  const [rows, open] = [[], new Map()];
  for (const one of blame) {
    const run = open.get(one.rank);
    const isAlike = run && run.at(-1).step + (MODEL?.oneIn ?? 1) === one.step && run[0].cause === one.cause && run[0].stage === one.stage
      && one.late_ns < 1.5 * run[0].late_ns && 1.5 * one.late_ns > run[0].late_ns;
    if (isAlike) run.push(one);
    else {
      const begun = [one];
      open.set(one.rank, begun);
      rows.push(begun);
    }
  }
  return rows.map((run) => {
    const middle = run.toSorted((a, b) => a.late_ns - b.late_ns)[Math.floor((run.length - 1) / 2)];
    return { ...middle, step: run[0].step, last: run.at(-1).step };
  });
}

/** A chain in one line. */
function chainText(chain) {
  return chain.map((link) => `${time(link.late_ns)} in ${link.comm} number ${link.seq}`).join(', ');
}
