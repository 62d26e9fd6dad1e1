// The drawings of a trace: a timeline, the calls of ranges as an icicle, and the critical path.

const KINDS = ['zone on a stream', 'collective', 'zone on a thread', 'kernel', 'copy', 'wait of a stream', 'wait of a thread for the device', 'step'];
const NAMELESS = { 7: 'step' };
const WAITS = 5;
const END_NOT_TIMED = '(end not timed)';
const STEP = 7;

const nameOf = (at) => DATA.details.names[at] ?? '';

/** Puts each slice of a row on the first lane below those around it. */
function nested(slices) {
  let open = [];
  let lanes = 1;
  const sorted = [...slices].sort((a, b) => a.x - b.x || b.w - a.w);
  for (const slice of sorted) {
    open = open.filter(({ end }) => end > slice.x);
    // Not their number: one that began later may end later, too, and keeps its lane.
    slice.depth = Math.max(-1, ...open.map(({ depth }) => depth)) + 1;
    open.push({ end: slice.x + slice.w, depth: slice.depth });
    lanes = Math.max(lanes, slice.depth + 1);
  }
  return lanes;
}

function timelineModel(timeline) {
  const rows = timeline.rows.map((label) => ({ label, slices: [], lanes: 1 }));
  // The last two are there if the length is only a bound: the shortest length, and what of `w` is uncertain.
  for (const [at, [row, name, kind, x, w, all = w, least = all, uncertain = 0]] of timeline.slices.entries()) {
    rows[row].slices.push({ fields: timeline.fields?.[at], name: nameOf(name) || NAMELESS[kind] || '', kind, x, w, all, least, uncertain, isWait: kind >= WAITS && kind !== STEP, row });
  }
  // Those that are too short to be drawn alone are below the others, the darker the more of the time they take.
  for (const [row, x, w, density, slices] of timeline.merged ?? []) {
    rows[row].merged ??= [];
    rows[row].merged.push({ name: `${plural(slices, 'slice')} too short to be drawn alone`, x, w, density, slices, row });
  }
  const rects = [];
  const below = [];
  let lane = 0;
  for (const row of rows) {
    row.lanes = row.slices.length > 0 ? nested(row.slices) : 0;
    if (row.merged) {
      for (const block of row.merged) if (lane + row.lanes < MOST_LANES) rects.push({ ...block, lane: lane + row.lanes });
      row.lanes += 1;
    }
    below.push(lane + row.lanes - 1);
    for (const slice of row.slices) if (lane + slice.depth < MOST_LANES) rects.push({ ...slice, lane: lane + slice.depth });
    lane += row.lanes;
  }
  const seen = rows.map((row) => ({ label: row.label, lanes: row.lanes }));
  while (seen.reduce((sum, row) => sum + row.lanes, 0) > MOST_LANES) {
    const last = seen.at(-1);
    if (last.lanes > 1 && seen.length === 1) last.lanes = MOST_LANES;
    else seen.pop();
  }
  const drawn = seen.reduce((sum, row) => sum + row.lanes, 0);
  return {
    rows: seen,
    rects: rects.filter((rect) => rect.lane < drawn),
    length: timeline.length_ns,
    edges: (timeline.edges ?? []).map((x) => ({ x })),
    marks: (timeline.path ?? []).map(([row, x, w]) => ({ lane: below[row], x, w })).filter((mark) => mark.lane < drawn),
    describe: (rect) => rect.density !== undefined
      ? [rect.name, `${percent(rect.density)} of ${time(rect.w)}, from ${timeOrZero(rect.x)}`, shortened(timeline.rows[rect.row])]
      : [shortened(rect.name), `${rect.least < rect.all ? `${timeOrZero(rect.least)} to ` : ''}${timeOrZero(rect.all)}, from ${timeOrZero(rect.x)}${rect.all > rect.w ? '; more of it lies outside' : ''}`, `${KINDS[rect.kind]} · ${shortened(timeline.rows[rect.row])}`, ...(rect.fields === undefined ? [] : [rect.fields])],
  };
}

/** The timelines; returns the chart. */
function makeTimeline(section) {
  const timelines = DATA.details.timelines ?? [];
  if (timelines.length === 0) {
    section.remove();
    return undefined;
  }
  const picker = element('select', { id: 'which', 'aria-label': 'Time shown' }, ...timelines.map((one, at) => element('option', { value: String(at) }, one.edges ? `${one.title}: ${time(one.edges[1])}` : one.title)));
  const controls = element('div', { class: 'controls' }, element('label', {}, 'Show ', picker));
  const rest = element('p', { class: 'note' });
  section.append(controls);
  const chart = new Chart(section, 'Timeline');
  controls.append(chart.buttons());
  section.append(rest, element('p', { class: 'note' }, KEYS));
  const show = () => {
    const timeline = timelines[Number(picker.value)];
    const model = timelineModel(timeline);
    chart.show(model);
    const sum = (blocks) => blocks.reduce((all, { slices }) => all + slices, 0);
    const blocks = model.rects.filter((rect) => rect.density !== undefined);
    const merged = sum(blocks);
    const alone = model.rects.length - blocks.length;
    const all = timeline.left_out + timeline.slices.length + (timeline.merged ?? []).reduce((of, [, , , , slices]) => of + slices, 0);
    const left = all - alone - merged;
    const parts = [`${plural(alone, 'slice')}${merged > 0 ? `; ${count(merged)} shorter ones are merged into the gray blocks below them, the darker the more of the time they take` : ''}${left > 0 ? `; ${count(left)} more, on rows or lanes that are not drawn, are left out` : ''}.`];
    if (timeline.edges) parts.push('Dashed: the begin and the end of the step; what it launched may run later.');
    if (model.rects.some((rect) => rect.uncertain > 0)) parts.push('Pale: the zone or the wait may have ended there, because no event times its end.');
    if (model.marks.length > 0) parts.push('Red below a row: the critical path.');
    if (timelines.length > 1 || DATA.details.traces.length > 1) parts.push(`Of ${timeline.trace}.`);
    rest.textContent = parts.join(' ');
  };
  picker.addEventListener('change', show);
  show();
  return chart;
}

/** Parents above their parts, which are side by side, the longest first. */
function icicleModel(calls) {
  const rects = [];
  const ends = [];
  let deepest = 0;
  for (const [depth, name, calledCount, total, self] of calls.nodes) {
    const x = depth === 0 ? (ends[0] ?? 0) : ends[depth];
    ends[depth] = x + total;
    ends[depth + 1] = x;
    deepest = Math.max(deepest, depth);
    rects.push({ name: nameOf(name), lane: depth, x, w: total, calls: calledCount, self, isUncertain: nameOf(name) === END_NOT_TIMED });
  }
  const length = Math.max(1, ends[0] ?? 0);
  return {
    rows: [{ label: '', lanes: deepest + 1 }],
    rects,
    length,
    describe: (rect) => [
      shortened(rect.name),
      `${rect.name.endsWith(END_NOT_TIMED) ? '≤' : ''}${time(rect.w)} in ${plural(rect.calls, 'zone')}: ${percent(rect.w / length)} of all`,
      `${time(rect.self)} of its own: ${percent(rect.self / length)}`,
    ],
  };
}

function makeIcicle(section) {
  const calls = DATA.details.calls ?? [];
  if (calls.length === 0) {
    section.remove();
    return undefined;
  }
  const picker = element('select', { 'aria-label': 'Where' }, ...calls.map((one, at) => element('option', { value: String(at) }, `zones ${PLACES[one.on].long}`)));
  const controls = element('div', { class: 'controls' }, element('label', {}, 'Of ', picker));
  const rest = element('p', { class: 'note' });
  section.append(
    element('p', { class: 'note' }, 'All zones, by the zones around them on their row. Width: the time in all calls together. What nothing below covers is a range’s own time, or calls that are left out.'),
    controls,
  );
  const chart = new Chart(section, 'Time by call');
  controls.append(chart.buttons());
  section.append(rest);
  const show = () => {
    const one = calls[Number(picker.value)];
    chart.show(icicleModel(one));
    rest.textContent = one.left_out > 0 ? `${plural(one.left_out, 'call path')} of ${time(one.left_out_ns)} together ${one.left_out === 1 ? 'is' : 'are'} left out of these drawings.` : '';
  };
  picker.addEventListener('change', show);
  show();
  return chart;
}

function makePath(section) {
  const path = DATA.path;
  if (!path) {
    section.remove();
    return undefined;
  }
  const about = path.left_out > 0
    ? `The last ${time(path.length_ns)} of a path of ${time(path.all_ns)}; ${plural(path.left_out, 'earlier stretch', 'earlier stretches')} are not drawn.`
    : `The ${DATA.report.critical_path_is_bound ? '≤' : ''}${time(path.all_ns)} that must become shorter for the run to become shorter.`;
  const controls = element('div', { class: 'controls' });
  section.append(element('p', { class: 'note' }, `${about} Red: from the stream or thread that waited to the one that it waited for.`), controls);
  const chart = new Chart(section, 'Critical path');
  controls.append(chart.buttons());
  const rects = path.stretches.map(([lane, x, w]) => ({ lane, x, w, name: path.rows[lane] }));
  const links = rects.slice(1).map((rect, at) => ({ x: rect.x, from: rects[at].lane, to: rect.lane })).filter((link) => link.from !== link.to);
  const lanes = Math.min(path.rows.length, MOST_LANES);
  chart.show({
    rows: path.rows.slice(0, lanes).map((label) => ({ label: shortened(label), lanes: 1 })),
    rects: rects.filter((rect) => rect.lane < lanes),
    links: links.filter((link) => Math.max(link.from, link.to) < lanes),
    length: Math.max(1, path.length_ns),
    describe: (rect) => [shortened(rect.name), `${time(rect.w)} on the path, from ${timeOrZero(rect.x)}`],
  });
  return chart;
}
