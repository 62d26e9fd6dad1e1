// Rectangles on lanes, on a canvas: the drawing behind the timeline, the icicle and the critical path. The horizontal axis is time.

const LANE = 19;
const ROW_GAP = 7;
const AXIS = 22;
const MOST_LANES = 320;
const PALE = 0.35;
const FONT = '12px system-ui, "DejaVu Sans", sans-serif';
const COLORS = ['page', 'plot', 'hatch', 'ink', 'soft', 'line', 'bad', 'select'];

/** The color of an expression of the style sheet. */
function styled(expression) {
  const probe = element('span');
  probe.style.color = expression;
  document.body.append(probe);
  const color = getComputedStyle(probe).color;
  probe.remove();
  return color;
}

const isDark = () => styled('var(--page)').match(/\d+/g).slice(0, 3).reduce((sum, part) => sum + Number(part), 0) < 3 * 128;

/** A hue for each name, always the same one. */
function hueOf(name) {
  let hash = 2166136261;
  for (let at = 0; at < name.length; at += 1) hash = Math.imul(hash ^ name.charCodeAt(at), 16777619);
  return ((hash >>> 0) % 24) * 15;
}

/**
 * Draws a model: `rows` with a `label` and a number of `lanes`, `rects` with `x`, `w`, `lane` (counted over all rows), `name` and perhaps
 * `isWait`, `density` (a gray block, as dark as that share), `isUncertain` (pale) or `uncertain` (so much of its end is), the `length` of the axis, `describe(rect)` in lines, perhaps `marks` (lines below a lane), `links` (between lanes) and `edges`
 * (lines from top to bottom with a text).
 */
class Chart {
  constructor(place, title) {
    this.canvas = element('canvas', { tabindex: '0', role: 'application', 'aria-label': title });
    this.context = this.canvas.getContext('2d');
    this.tip = element('div', { class: 'tip', role: 'presentation', hidden: '' });
    this.said = element('p', { class: 'picked', 'aria-live': 'polite' });
    this.test = () => true;
    place.append(element('div', { class: 'frame' }, this.canvas, this.tip), this.said);
    this.listen();
  }

  show(model) {
    this.model = { marks: [], links: [], edges: [], ...model };
    this.view = { from: 0, to: model.length };
    this.picked = undefined;
    this.hovered = undefined;
    this.said.textContent = '';
    this.tip.hidden = true;
    this.tops = [];
    let y = AXIS;
    for (const row of model.rows) {
      for (let lane = 0; lane < row.lanes; lane += 1) this.tops.push(y + lane * LANE);
      y += row.lanes * LANE + ROW_GAP;
    }
    this.height = y + 2;
    this.style();
    this.resize();
  }

  /** Fades what does not pass the test of a name. */
  filter(test) {
    this.test = test;
    this.later();
  }

  style() {
    this.colors = Object.fromEntries(COLORS.map((name) => [name, styled(`var(--${name})`)]));
    this.isDark = isDark();
    this.fills = new Map();
    const tile = element('canvas', { width: 6, height: 6 });
    const context = tile.getContext('2d');
    context.fillStyle = this.colors.plot;
    context.fillRect(0, 0, 6, 6);
    context.strokeStyle = this.colors.hatch;
    context.beginPath();
    for (const from of [-6, 0, 6]) {
      context.moveTo(from, 6);
      context.lineTo(from + 6, 0);
    }
    context.stroke();
    this.hatch = this.context.createPattern(tile, 'repeat');
    this.later();
  }

  resize() {
    if (!this.model) return;
    const width = Math.max(240, this.canvas.parentElement.clientWidth);
    const dpr = Math.min(window.devicePixelRatio || 1, 32_000 / this.height);
    this.context.font = FONT;
    const longest = Math.max(0, ...this.model.rows.map((row) => this.context.measureText(row.label).width));
    const left = longest === 0 ? 0 : Math.ceil(Math.min(longest, 180)) + 10;
    Object.assign(this, { width, dpr, left });
    this.canvas.style.height = `${this.height}px`;
    this.canvas.width = Math.round(width * dpr);
    this.canvas.height = Math.round(this.height * dpr);
    this.draw();
  }

  later() {
    if (!this.model) return;
    this.pending ??= requestAnimationFrame(() => this.draw());
  }

  fill(rect) {
    if (rect.isWait) return this.hatch;
    let fill = this.fills.get(rect.name);
    if (!fill) {
      fill = `hsl(${hueOf(rect.name)} ${this.isDark ? '38% 34%' : '58% 76%'})`;
      this.fills.set(rect.name, fill);
    }
    return fill;
  }

  /** From time to pixels. */
  at(x) {
    const { from, to } = this.view;
    return this.left + ((x - from) / (to - from)) * (this.width - this.left);
  }

  draw() {
    if (this.pending) cancelAnimationFrame(this.pending);
    this.pending = undefined;
    const { context, model, colors, width, height, left } = this;
    context.setTransform(this.dpr, 0, 0, this.dpr, 0, 0);
    context.font = FONT;
    context.textBaseline = 'middle';
    context.fillStyle = colors.page;
    context.fillRect(0, 0, width, height);
    this.drawRows();
    context.save();
    context.beginPath();
    context.rect(left, 0, width - left, height);
    context.clip();
    this.drawAxis();
    for (const rect of model.rects) this.drawRect(rect);
    this.drawLines();
    for (const rect of [this.hovered, this.picked]) if (rect) this.outline(rect);
    context.restore();
  }

  drawRows() {
    const { context, model, colors } = this;
    let lane = 0;
    for (const row of model.rows) {
      const [y, high] = [this.tops[lane], row.lanes * LANE];
      context.fillStyle = colors.plot;
      context.fillRect(this.left, y, this.width - this.left, high - 1);
      context.fillStyle = colors.ink;
      if (this.left > 0) context.fillText(this.cut(row.label, this.left - 8), 0, y + LANE / 2);
      lane += row.lanes;
    }
  }

  drawAxis() {
    const { context, view, colors } = this;
    const span = view.to - view.from;
    const about = (span * 110) / Math.max(1, this.width - this.left);
    const power = 10 ** Math.floor(Math.log10(about));
    const tick = Math.max(1, power * [1, 2, 5, 10].find((factor) => factor * power >= about));
    context.fillStyle = colors.soft;
    context.strokeStyle = colors.line;
    context.lineWidth = 1;
    context.beginPath();
    for (let at = Math.ceil(view.from / tick) * tick; at <= view.to; at += tick) {
      const x = Math.round(this.at(at)) + 0.5;
      context.moveTo(x, AXIS - 4);
      context.lineTo(x, this.height);
      const text = timeOrZero(at);
      if (x + 4 + context.measureText(text).width < this.width) context.fillText(text, x + 3, 8);
    }
    context.stroke();
  }

  drawRect(rect) {
    const { context, colors } = this;
    const [from, to] = [this.at(rect.x), this.at(rect.x + rect.w)];
    if (to < this.left || from > this.width) return;
    const [x, y] = [Math.max(from, this.left - 1), this.tops[rect.lane]];
    const wide = Math.max(0.75, Math.min(to, this.width + 1) - x);
    const alpha = this.test(rect.name) ? 1 : 0.2;
    const drawn = wide > 3 ? wide - 0.75 : wide;
    const certain = rect.isUncertain ? 0 : Math.min(drawn, Math.max(0, this.at(rect.x + rect.w - (rect.uncertain ?? 0)) - x));
    context.fillStyle = rect.density === undefined ? this.fill(rect) : colors.soft;
    context.globalAlpha = rect.density === undefined ? alpha : alpha * (0.12 + 0.78 * rect.density);
    context.fillRect(x, y, rect.uncertain > 0 || rect.isUncertain ? certain : drawn, LANE - 1.5);
    if (certain < drawn && (rect.uncertain > 0 || rect.isUncertain)) {
      context.globalAlpha = alpha * PALE;
      context.fillRect(x + certain, y, drawn - certain, LANE - 1.5);
      context.globalAlpha = alpha;
    }
    context.globalAlpha = alpha;
    if (wide > 26 && rect.density === undefined) {
      context.fillStyle = colors.ink;
      context.fillText(this.cut(rect.name, wide - 7), x + 3, y + LANE / 2);
    }
    context.globalAlpha = 1;
  }

  drawLines() {
    const { context, model, colors } = this;
    context.fillStyle = colors.bad;
    for (const { lane, x, w } of model.marks) {
      context.fillRect(this.at(x), this.tops[lane] + LANE - 3, Math.max(1, this.at(x + w) - this.at(x)), 3);
    }
    // Many arrows are thin, so that what they connect is seen.
    const links = model.links.filter(({ x }) => x >= this.view.from && x <= this.view.to);
    context.strokeStyle = colors.bad;
    context.lineWidth = 1.25;
    context.globalAlpha = links.length > 100 ? 0.35 : 1;
    context.beginPath();
    for (const { x, from, to } of links) {
      context.moveTo(this.at(x), this.tops[from] + LANE / 2);
      context.lineTo(this.at(x), this.tops[to] + LANE / 2);
    }
    context.stroke();
    context.globalAlpha = 1;
    context.strokeStyle = colors.soft;
    context.setLineDash([4, 3]);
    context.beginPath();
    for (const { x } of model.edges) {
      context.moveTo(this.at(x), AXIS - 8);
      context.lineTo(this.at(x), this.height);
    }
    context.stroke();
    context.setLineDash([]);
  }

  outline(rect) {
    const [from, to] = [this.at(rect.x), this.at(rect.x + rect.w)];
    this.context.strokeStyle = this.colors.select;
    this.context.lineWidth = rect === this.picked ? 2 : 1;
    this.context.strokeRect(from, this.tops[rect.lane] + 0.5, Math.max(2, to - from - 1), LANE - 2.5);
  }

  /** What of a text fits. */
  cut(text, pixels) {
    if (pixels < 12) return '';
    const known = text.length > 300 ? text.slice(0, 300) : text;
    const wide = this.context.measureText(known).width;
    if (wide <= pixels && known === text) return text;
    const fits = Math.floor((known.length * pixels) / wide) - 1;
    return fits < 1 ? '' : `${known.slice(0, fits)}…`;
  }

  /** The rectangle at a point of the canvas. Small ones have a margin of two pixels. */
  rectAt(x, y) {
    const lane = this.tops.findIndex((top) => y >= top && y < top + LANE);
    if (lane < 0 || x < this.left) return undefined;
    let best;
    let distance = 2.01;
    for (const rect of this.model.rects) {
      if (rect.lane !== lane) continue;
      const away = Math.max(this.at(rect.x) - x, x - this.at(rect.x + rect.w), 0);
      if (away < distance) [best, distance] = [rect, away];
    }
    return best;
  }

  zoom(factor, around = (this.view.from + this.view.to) / 2) {
    const { from, to } = this.view;
    const span = Math.min(this.model.length, Math.max((to - from) * factor, Math.min(20, this.model.length)));
    const begin = around - ((around - from) / (to - from)) * span;
    this.look(begin, begin + span);
  }

  /** Shows a part of the axis. */
  look(from, to) {
    const span = Math.min(Math.max(to - from, 1), this.model.length);
    const begin = Math.min(Math.max(0, from), this.model.length - span);
    this.view = { from: begin, to: begin + span };
    this.later();
  }

  pick(rect) {
    this.picked = rect;
    this.said.textContent = rect ? this.model.describe(rect).join(' · ') : '';
    if (rect && (rect.x + rect.w < this.view.from || rect.x > this.view.to)) {
      const span = this.view.to - this.view.from;
      this.look(rect.x + rect.w / 2 - span / 2, rect.x + rect.w / 2 + span / 2);
    }
    this.later();
  }

  /** The next rectangle of the lane, or the nearest one of another lane. */
  step(sideways, down) {
    const { rects } = this.model;
    if (!this.picked) return this.pick(rects[0]);
    const { x, w, lane } = this.picked;
    if (down === 0) {
      const beside = rects.filter((rect) => rect.lane === lane && (sideways > 0 ? rect.x > x : rect.x < x));
      const next = sideways > 0 ? beside.reduce((a, b) => (a && a.x <= b.x ? a : b), undefined) : beside.reduce((a, b) => (a && a.x >= b.x ? a : b), undefined);
      return next && this.pick(next);
    }
    const away = (rect) => Math.max(rect.x - (x + w), x - (rect.x + rect.w), 0) + Math.abs(rect.x - x) / 1e3;
    for (let at = lane + down; at >= 0 && at < this.tops.length; at += down) {
      const there = rects.filter((rect) => rect.lane === at);
      if (there.length > 0) return this.pick(there.reduce((a, b) => (away(a) <= away(b) ? a : b)));
    }
    return undefined;
  }

  listen() {
    const { canvas } = this;
    const point = (event) => {
      const { left, top } = canvas.getBoundingClientRect();
      return [event.clientX - left, event.clientY - top];
    };
    let drag;
    canvas.addEventListener('pointerdown', (event) => {
      if (event.button !== 0) return;
      drag = { x: event.clientX, view: this.view, moved: false };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener('pointermove', (event) => {
      const [x, y] = point(event);
      if (drag) {
        const by = event.clientX - drag.x;
        drag.moved ||= Math.abs(by) > 3;
        if (drag.moved) {
          canvas.classList.add('moving');
          const ns = (by / (this.width - this.left)) * (drag.view.to - drag.view.from);
          this.look(drag.view.from - ns, drag.view.to - ns);
        }
      }
      this.hover(drag?.moved ? undefined : this.rectAt(x, y), x, y);
    });
    canvas.addEventListener('pointerup', (event) => {
      if (drag && !drag.moved) this.pick(this.rectAt(...point(event)));
      drag = undefined;
      canvas.classList.remove('moving');
    });
    canvas.addEventListener('pointerleave', () => this.hover(undefined));
    canvas.addEventListener('dblclick', (event) => this.enlarge(this.rectAt(...point(event))));
    canvas.addEventListener(
      'wheel',
      (event) => {
        if (!event.ctrlKey && document.activeElement !== canvas) return;
        event.preventDefault();
        const [x] = point(event);
        const around = this.view.from + ((x - this.left) / (this.width - this.left)) * (this.view.to - this.view.from);
        this.zoom(event.deltaY > 0 ? 1.25 : 0.8, around);
      },
      { passive: false },
    );
    canvas.addEventListener('keydown', (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const act = {
        ArrowRight: () => this.step(1, 0),
        ArrowLeft: () => this.step(-1, 0),
        ArrowDown: () => this.step(0, 1),
        ArrowUp: () => this.step(0, -1),
        Enter: () => this.enlarge(this.picked),
        Escape: () => this.pick(undefined),
        '+': () => this.zoom(1 / 1.5),
        '=': () => this.zoom(1 / 1.5),
        '-': () => this.zoom(1.5),
        0: () => this.look(0, this.model.length),
      }[event.key];
      if (!act) return;
      event.preventDefault();
      act();
    });
    // In a frame of its own: what changes sizes while they are observed is an error of the page.
    new ResizeObserver(() => requestAnimationFrame(() => canvas.parentElement.clientWidth !== this.width && this.resize())).observe(canvas.parentElement);
  }

  /** Zooms to a rectangle, or out to everything. */
  enlarge(rect) {
    if (rect) this.look(rect.x - rect.w * 0.02, rect.x + rect.w * 1.02);
    else this.look(0, this.model.length);
  }

  hover(rect, x, y) {
    if (rect !== this.hovered) this.later();
    this.hovered = rect;
    this.tip.hidden = !rect;
    if (!rect) return;
    this.tip.textContent = this.model.describe(rect).join('\n');
    const right = x > this.width / 2;
    this.tip.style.left = right ? '' : `${x + 14}px`;
    this.tip.style.right = right ? `${this.width - x + 14}px` : '';
    this.tip.style.top = `${y + 14}px`;
  }

  /** The buttons of a chart. */
  buttons() {
    const button = (text, title, act) => {
      const made = element('button', { type: 'button', title, 'aria-label': title }, text);
      made.addEventListener('click', act);
      return made;
    };
    return element(
      'span',
      { class: 'buttons' },
      button('+', 'Zoom in (+)', () => this.zoom(1 / 1.5)),
      button('−', 'Zoom out (−)', () => this.zoom(1.5)),
      button('all', 'Show everything (0)', () => this.look(0, this.model.length)),
    );
  }
}

const KEYS = 'Drag to move, scroll with Ctrl (or after a click) to zoom. Keys: arrows, Enter to enlarge, + − 0, Esc.';
