// From times to colors. What is usual is neutral: color means that something stands out, on light and on dark pages.

const RAMPS = {
  beyond: {
    light: ['#ffe9a8', '#ffc24d', '#f5811f', '#cf2318', '#5a0512'],
    dark: ['#4a2a1c', '#8f3a1c', '#df5a1f', '#ffb02e', '#fff3c4'],
  },
  other: {
    light: ['#e6eff8', '#a9cbe8', '#5b9bd0', '#1f64a8', '#08305f'],
    dark: ['#23303d', '#2b5578', '#3b86bb', '#7cc0ee', '#e4f4ff'],
  },
};

/** The color of an expression of the style sheet, as bytes. */
function styled(expression) {
  const probe = element('span');
  probe.style.color = expression;
  document.body.append(probe);
  const color = getComputedStyle(probe).color;
  probe.remove();
  return (color.match(/[\d.]+/g) ?? [0, 0, 0]).slice(0, 3).map(Number);
}

const isDark = () => styled('var(--page)').reduce((sum, part) => sum + part, 0) < 3 * 128;

function ramp(metric) {
  const stops = RAMPS[metric === 'beyond' ? 'beyond' : 'other'][isDark() ? 'dark' : 'light'];
  const parts = stops.map((stop) => [1, 3, 5].map((at) => parseInt(stop.slice(at, at + 2), 16)));
  const colors = new Uint32Array(256);
  for (let at = 0; at < 256; at += 1) {
    const place = (at / 255) * (parts.length - 1);
    const below = Math.min(Math.floor(place), parts.length - 2);
    const [r, g, b] = parts[below].map((part, which) => Math.round(part + (parts[below + 1][which] - part) * (place - below)));
    colors[at] = packed(r, g, b);
  }
  return colors;
}

const packed = (r, g, b) => ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;

/** The middle, or another quantile, of what is no NaN; of a sample where there are many. */
function quantile(values, share, of = (value) => value) {
  const stride = Math.max(1, Math.floor(values.length / 50_000));
  const some = [];
  for (let at = 0; at < values.length; at += stride) if (!Number.isNaN(values[at])) some.push(of(values[at]));
  some.sort((a, b) => a - b);
  return some.length === 0 ? 0 : some[Math.min(some.length - 1, Math.floor(share * some.length))];
}

/** From six robust deviations on, what is beyond the peers is more than noise. */
const DEVIATIONS = 6 * 1.4826;

/**
 * The scale of a metric: `color(ns)` is packed; below `low` it is neutral. Logarithmic where the largest is far beyond the usual, since one
 * huge value must not hide the others.
 */
function makeScale(metric, values) {
  let high = 0;
  for (const value of values) if (value > high) high = value;
  const low = metric === 'beyond' ? Math.max(DEVIATIONS * quantile(values, 0.5, Math.abs), 1000) : quantile(values, 0.02);
  const isEven = high <= low * 1.001;
  const isLog = low > 0 && (metric === 'beyond' || high > 4 * low);
  const colors = ramp(metric);
  const neutral = packed(...styled('var(--plot)'));
  const range = isLog ? Math.log(high / low) : high - low;
  const share = (ns) => (isEven ? 0 : Math.min(1, Math.max(0, (isLog ? Math.log(ns / low) : ns - low) / range)));
  return {
    low,
    high,
    isLog,
    isEven,
    colors,
    neutral,
    color(ns) {
      if (Number.isNaN(ns)) return 0;
      if (isEven || (metric === 'beyond' && ns <= low)) return neutral;
      return colors[Math.round(255 * share(ns))];
    },
    /** The time at a share of the scale. */
    at: (part) => (isLog ? low * Math.exp(range * part) : low + range * part),
  };
}

/** Draws the legend of a scale. */
function showLegend(place, metric, scale) {
  place.replaceChildren();
  const missing = element('span', {}, element('span', { class: 'swatch missing' }), metric === 'beyond' ? 'nothing written, or compared with no rank' : 'nothing written');
  if (metric === 'beyond') {
    const text = scale.isEven ? `no cell is more than ${time(scale.low)} beyond its peers: noise` : `up to ${time(scale.low)} beyond: noise`;
    place.append(element('span', {}, element('span', { class: 'swatch neutral' }), text));
  }
  if (!scale.isEven) {
    const bar = element('canvas', { width: 256, height: 1, 'aria-hidden': 'true' });
    const context = bar.getContext('2d');
    const image = context.createImageData(256, 1);
    new Uint32Array(image.data.buffer).set(scale.colors);
    context.putImageData(image, 0, 0);
    const middle = `${time(scale.at(0.5))} in the middle${scale.isLog ? ', logarithmic' : ''}`;
    place.append(element('span', {}, time(scale.low), bar, time(scale.high), ` (${middle})`));
  }
  place.append(missing);
}
