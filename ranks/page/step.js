// One step: who was late in it and why, and the ranks that stand out most.

/** Ranks of a step that are listed. */
const RANKS_OF_STEP = 12;

/** Parts of a step whose names are not their keys. */
const PARTS = { uncertain: 'end not timed' };

/** Shows a step in its section; nothing hides it. */
function showStep(place) {
  const section = byId('step');
  section.hidden = !place;
  if (!place) return;
  const column = place.column;
  const label = MODEL.columnLabel(column);
  byId('step-title').textContent = `${MODEL.stepBlock > 1 ? 'Steps' : 'Step'} ${label}`;
  const steps = MODEL.steps.slice(column * MODEL.stepBlock, (column + 1) * MODEL.stepBlock);
  const blamed = steps.flatMap((step) => BLAME.get(step) ?? []).sort((a, b) => b.late_ns - a.late_ns);
  const body = byId('step-body');
  body.replaceChildren(
    element('p', {}, `It took ${time(MODEL.wallNs[column])} on the rank that took longest; a step takes ${time(REPORT.size.step_ns)} on average.`),
  );
  if (blamed.length === 0) body.append(element('p', {}, 'No rank is blamed for it.'));
  for (const one of blamed) body.append(blameOf(one));
  body.append(ranksOf(column, place.row));
}

/** Shows a step that is not in the map. */
function showOtherStep(step) {
  byId('step').hidden = false;
  byId('step-title').textContent = `Step ${step}`;
  const why = MODEL.oneIn > 1 ? `The map has one in ${MODEL.oneIn} steps, and not this one.` : 'No rank has written it.';
  byId('step-body').replaceChildren(element('p', {}, why), ...(BLAME.get(step) ?? []).map(blameOf));
}

/** From the wait to the work. */
function blameOf(one) {
  const list = element('ol');
  for (const link of one.chain) {
    list.append(element('li', {}, `The other ranks of the group waited ${time(link.late_ns)} in `, code(link.comm), ` number ${link.seq} for rank ${link.rank}.`));
  }
  const range = one.stage === '' ? ['.'] : [', in ', code(one.stage), '.'];
  list.append(element('li', {}, `Rank ${one.rank} took longer itself: ${CAUSES[one.cause]}`, ...range));
  const host = hostOf(one.rank);
  const title = `Rank ${one.rank}${host === '' ? '' : ` on ${host}`} was ${time(one.late_ns)}${plusMinus(one.err_ns)} late`;
  return element('div', {}, element('h3', {}, MODEL.stepBlock > 1 ? `${title} in step ${one.step}` : title), list);
}

/** The ranks furthest beyond their peers, and the one that is selected. */
function ranksOf(column, selected) {
  const beyond = MODEL.values('beyond');
  const rows = [];
  for (let row = 0; row < MODEL.rows; row += 1) {
    if (!Number.isNaN(beyond[row * MODEL.columns + column])) rows.push(row);
  }
  rows.sort((a, b) => beyond[b * MODEL.columns + column] - beyond[a * MODEL.columns + column]);
  const shown = rows.slice(0, RANKS_OF_STEP);
  if (selected !== undefined && !shown.includes(selected) && rows.includes(selected)) shown.push(selected);
  const cells = shown.map((row) => MODEL.cell(row, column));
  const longest = Math.max(1, ...cells.map((cell) => cell.wall));
  const part = (name, ns) => {
    const made = element('i', { class: name, title: `${PARTS[name] ?? name} ${time(ns)}` });
    made.style.width = `${(100 * ns) / longest}%`;
    return made;
  };
  // Most jobs have none.
  const parts = ['compute', 'idle', 'waiting', ...(MODEL.hasUncertain ? ['uncertain'] : [])];
  const head = ['rank', 'host', 'own time', 'beyond peers', ...parts.map((name) => PARTS[name] ?? name), 'step'];
  const isNumber = (at) => (at === 1 || at === head.length ? undefined : 'number');
  const line = (cell, row) => {
    const texts = [String(cell.rank), cell.host, time(cell.own), time(cell.beyond), ...parts.map((name) => time(cell[name])), time(cell.wall)];
    const bar = element('div', { class: 'bar', 'aria-hidden': 'true' }, ...parts.map((name) => part(name, cell[name])));
    const made = element('tr', {}, ...texts.map((text, at) => element('td', { class: isNumber(at) }, text)), element('td', {}, bar));
    if (cell.isIncomplete) made.lastChild.append('zones were dropped: times are too short');
    if (row === selected) made.setAttribute('aria-current', 'true');
    return made;
  };
  const key = element('span', { class: 'key' });
  for (const name of parts) key.append(element('span', { class: `swatch ${name}` }), PARTS[name] ?? name);
  return element(
    'div',
    {},
    element('h3', {}, `${rows.length > shown.length ? `The ${shown.length} of ${count(rows.length)} ${MODEL.rankBlock > 1 ? 'rows' : 'ranks'}` : 'The ranks'} that are furthest beyond their peers `, key),
    element(
      'div',
      { class: 'scroll' },
      element(
        'table',
        {},
        element('thead', {}, element('tr', {}, ...head.map((text, at) => element('th', { scope: 'col', class: isNumber(at) }, text)), element('th', { scope: 'col' }, 'of the step'))),
        element('tbody', {}, ...cells.map((cell, at) => line(cell, shown[at]))),
      ),
    ),
  );
}
