// The button that chooses the colors.

/** Lets the button take the colors in turn; `redraw` runs whenever they change, also when the system's do. */
function chooseColors(redraw) {
  const themes = ['system', 'light', 'dark'];
  byId('theme').addEventListener('click', () => {
    const now = themes[(themes.indexOf(document.documentElement.dataset.theme ?? 'system') + 1) % themes.length];
    document.documentElement.dataset.theme = now;
    byId('theme').textContent = `Colors: ${now}`;
    redraw();
  });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw);
}
