// Tables that are sorted by a click on the head of a column, and filtered by the search.

/** Rows that a table shows at first. */
const SHOWN = 30;

/**
 * Puts a table into a section, and returns a function that filters it by a test of a row's text; that function returns how many rows pass.
 *
 * A column has a `key`, a `title`, perhaps a `hint`, and functions of a row: `value` to sort by, and `show` for a text or an element. `isNumber`
 * aligns it.
 */
function makeTable(section, { about, columns, rows, sortBy, isDescending = true, leftOut = 0 }) {
  if (about) section.append(element('p', { class: 'note' }, about));
  const texts = new Map(rows.map((row) => [row, columns.filter((column) => !column.isNumber).map((column) => column.value(row) ?? '').join(' ').toLowerCase()]));
  let sort = sortBy;
  let descending = isDescending;
  let isAll = false;
  let passes = () => true;
  const body = element('tbody');
  const heads = columns.map((column) => {
    const button = element('button', { type: 'button', title: column.hint }, column.title);
    button.addEventListener('click', () => {
      descending = sort === column.key ? !descending : Boolean(column.isNumber);
      sort = column.key;
      draw();
    });
    return element('th', { scope: 'col', 'data-key': column.key, class: column.isNumber ? 'number' : undefined }, button);
  });
  const rest = element('p', { class: 'note' });
  section.append(element('div', { class: 'scroll' }, element('table', {}, element('thead', {}, element('tr', {}, ...heads)), body)), rest);

  function draw() {
    const by = columns.find((column) => column.key === sort);
    const sign = descending ? -1 : 1;
    const compare = (a, b) => {
      const [one, other] = [by.value(a) ?? null, by.value(b) ?? null];
      // What is unknown comes last.
      if (one === null || other === null) return (one === null) - (other === null);
      return sign * (typeof one === 'string' ? one.localeCompare(other, 'en', { numeric: true }) : one - other);
    };
    const seen = rows.filter((row) => passes(texts.get(row)));
    if (by) seen.sort(compare);
    columns.forEach((column, at) => {
      if (column.key === sort) heads[at].setAttribute('aria-sort', descending ? 'descending' : 'ascending');
      else heads[at].removeAttribute('aria-sort');
    });
    const shown = isAll ? seen : seen.slice(0, SHOWN);
    const cell = (row, column) =>
      element('td', { 'data-key': column.key, class: column.isNumber ? 'number' : undefined }, (column.show ?? column.value)(row) ?? '');
    body.replaceChildren(...shown.map((row) => element('tr', {}, ...columns.map((column) => cell(row, column)))));
    rest.replaceChildren();
    if (seen.length < rows.length) rest.append(`${plural(rows.length - seen.length, 'row')} filtered out. `);
    if (shown.length < seen.length) {
      const more = element('button', { type: 'button' }, `show all ${count(seen.length)}`);
      more.addEventListener('click', () => {
        isAll = true;
        draw();
        body.rows[SHOWN]?.querySelector('button')?.focus();
      });
      rest.append(`${count(shown.length)} of ${count(seen.length)} rows; `, more, ' ');
    }
    if (leftOut > 0) rest.append(`The page leaves out ${plural(leftOut, 'more row')}; \`--format json\` has all.`);
    return seen.length;
  }

  draw();
  return (test) => {
    passes = test;
    return draw();
  };
}
