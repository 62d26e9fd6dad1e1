// The data of the page.

const DATA = JSON.parse(byId('data').textContent);
const REPORT = DATA.report;

/** Characters of a name that are shown; all of it is in the title of the element. */
const LONG = 160;

const shortened = (text) => (text.length > LONG ? `${[...text.slice(0, LONG)].slice(0, -1).join('')}…` : text);

const code = (text) => element('code', { title: text.length > LONG ? text : undefined }, shortened(text));

const timeOrZero = (ns) => (ns === 0 ? '0' : time(ns));
