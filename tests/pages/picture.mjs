// `node picture.mjs PAGE[#FRAGMENT] OUT.png WIDTHxHEIGHT [light|dark]`: a picture of a page, for the documentation. `cargo xtask picture` calls
// it. A page that does what none may do has no picture.

import { visit, close } from './harness.mjs';

const [page, out, size = '1280x800', colorScheme = 'light'] = process.argv.slice(2);
const [width, height] = size.split('x').map(Number);
try {
  await visit(page, { viewport: { width, height }, colorScheme, reducedMotion: 'reduce' }, (opened) =>
    opened.screenshot({ path: out, animations: 'disabled', caret: 'hide' }),
  );
} catch (error) {
  console.error(error.message);
  process.exitCode = 1;
} finally {
  await close();
}
