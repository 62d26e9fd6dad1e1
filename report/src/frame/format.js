// Numbers as a person reads them, always with their unit.

/** A length of time in ns, with three digits. */
function time(ns) {
  if (ns === null || ns === undefined || Number.isNaN(ns)) return '–';
  const size = Math.abs(ns);
  const [value, unit] =
    size >= 1e9 ? [ns / 1e9, 's'] : size >= 1e6 ? [ns / 1e6, 'ms'] : size >= 1e3 ? [ns / 1e3, 'µs'] : [ns, 'ns'];
  return `${digits(value)} ${unit}`;
}

/** Three digits. */
function digits(value) {
  const size = Math.abs(value);
  const text = size >= 99.95 ? value.toFixed(0) : size >= 9.995 ? value.toFixed(1) : value.toFixed(2);
  return text.replace('-', '−').replace(/^−0(\.0+)?$/, '0');
}

/** A number of things. */
function count(value) {
  return value.toLocaleString('en-US').replace('-', '−');
}

function plural(number, one, many = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : many}`;
}

/** A size in bytes, in powers of 1,024. */
function bytes(value) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  let size = value;
  while (size >= 1024 && unit + 1 < units.length) {
    size /= 1024;
    unit += 1;
  }
  return `${Number.isInteger(size) ? size : digits(size)} ${units[unit]}`;
}

/** A share of 1. */
function percent(share) {
  return `${digits(100 * share)} %`;
}

/** An element with a text or with children. Texts never become markup. */
function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== null) made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== undefined && child !== null));
  return made;
}

const byId = (id) => document.getElementById(id);
