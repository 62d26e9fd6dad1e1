// What the page says first, and the account at its end.

function makeVerdict() {
  const [first] = DATA.verdict;
  const plain = (sentence) => sentence.parts.join('');
  const traces = DATA.details.traces ?? [];
  const source = traces.length > 1 ? `of ${plural(traces.length, 'trace')}` : traces.length === 1 ? `of ${traces[0]}` : 'of a session';
  document.title = `Report ${shortened(source)}`;
  byId('source').textContent = source;
  const { zones } = REPORT;
  const facts = [
    `${count(zones.begun)} zones begun, ${count(zones.recorded)} recorded${zones.captured > 0 ? `, ${count(zones.captured)} captured` : ''}, ${count(zones.dropped)} dropped`,
    REPORT.duration_ns > 0 ? `session of ${time(REPORT.duration_ns)}` : '',
    REPORT.complete ? 'all marked zones' : 'not all marked zones',
  ];
  byId('facts').textContent = facts.filter((fact) => fact !== '').join(' · ');
  byId('verdict').classList.toggle('incomplete', DATA.verdict.some((sentence) => sentence.is_bad));
  const list = byId('verdict').querySelector('ul');
  for (const sentence of DATA.verdict) {
    const parts = sentence.parts.map((part, at) => (at % 2 === 1 ? code(part) : part));
    list.append(element('li', { class: sentence.is_bad ? 'bad' : undefined }, ...parts));
  }
  return plain(first);
}

function makeAccount() {
  byId('account').append(element('ul', {}, ...REPORT.account.map((line) => element('li', {}, line))));
  byId('made').textContent = `Made by ${DATA.program}. Everything is in this file; it makes no requests.`;
}
