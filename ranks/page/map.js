// The heat map on its canvas. The cells are painted once for each zoom level, several to a pixel as the largest of them, so that nothing
// that stands out disappears; a frame then only copies a part of that picture.

/** Pixels around the cells. What is left of them has room for the longest name of a row. */
const LEFT = 70;
const RIGHT = 10;
/** The bars of the means of the rows. */
const MARGIN = 84;
const STRIP = 46;
const GAP = 10;
const BOTTOM = 34;
const TALLEST = 560;
const LOWEST = 120;
const FONT = '12px system-ui, "DejaVu Sans", sans-serif';

/** A step that is so many times as long as most does not flatten the strip of the others: its bar is cut. */
const CLIPPED = 8;

/** Nobody needs fewer cells on the screen. */
const LEAST_CELLS = 6;

class HeatMap {
  /** `on.select(place)` is called with the row and the column of a cell, or nothing. */
  constructor(canvas, tip, model, on) {
    this.canvas = canvas;
    this.context = canvas.getContext('2d');
    this.tip = tip;
    this.model = model;
    this.on = on;
    this.order = Array.from({ length: model.rows }, (_, row) => row);
    this.view = { x: 0, y: 0, w: model.columns, h: model.rows };
    this.selected = undefined;
    this.hovered = undefined;
    this.levels = new Map();
    this.counts = { frames: 0, levels: 0, drawMs: 0 };
    this.listen();
  }

  /** Shows a metric in these rows, in this order. */
  show(metric, values, scale, order) {
    this.metric = metric;
    this.values = values;
    this.scale = scale;
    const isSame = order.length === this.order.length;
    this.order = order;
    this.placeOfRow = new Map(order.map((row, place) => [row, place]));
    if (!isSame) Object.assign(this.view, { y: 0, h: order.length });
    this.levels.clear();
    this.style();
    this.resize();
  }

  /** The colors of the page, which may have changed. */
  style() {
    this.colors = Object.fromEntries(
      ['page', 'plot', 'hatch', 'ink', 'soft', 'line', 'bad', 'select'].map((name) => [name, `rgb(${styled(`var(--${name})`).join()})`]),
    );
    const tile = element('canvas', { width: 8, height: 8 });
    const context = tile.getContext('2d');
    context.strokeStyle = this.colors.hatch;
    context.beginPath();
    for (const from of [-8, 0, 8]) {
      context.moveTo(from, 8);
      context.lineTo(from + 8, 0);
    }
    context.stroke();
    this.hatch = this.context.createPattern(tile, 'repeat');
  }

  resize() {
    const width = Math.max(240, this.canvas.parentElement.clientWidth);
    const height = STRIP + GAP + BOTTOM + Math.min(TALLEST, Math.max(LOWEST, this.order.length * 22));
    const scale = window.devicePixelRatio || 1;
    Object.assign(this, { width, height, dpr: scale });
    this.context.font = FONT;
    const longest = this.context.measureText(`${this.model.rowLabel(this.model.rows - 1)} ▸`).width;
    const left = Math.max(LEFT, Math.ceil(longest) + 28);
    this.plot = { x: left, y: STRIP + GAP, w: width - left - RIGHT - MARGIN, h: height - STRIP - GAP - BOTTOM };
    this.canvas.style.height = `${height}px`;
    this.canvas.width = Math.round(width * scale);
    this.canvas.height = Math.round(height * scale);
    this.later();
  }

  /** Draws with the next frame. */
  later() {
    this.pending ??= requestAnimationFrame(() => {
      this.pending = undefined;
      const begin = performance.now();
      this.draw();
      this.counts.frames += 1;
      this.counts.drawMs = performance.now() - begin;
    });
  }

  /** A picture of all cells with 2^lx columns and 2^ly rows in a pixel, each as the largest. */
  level(lx, ly) {
    const key = `${lx} ${ly}`;
    const known = this.levels.get(key);
    if (known) return known;
    const { columns } = this.model;
    const [bx, by] = [1 << lx, 1 << ly];
    const [w, h] = [Math.ceil(columns / bx), Math.ceil(this.order.length / by)];
    const picture = element('canvas', { width: Math.max(w, 1), height: Math.max(h, 1) });
    const context = picture.getContext('2d');
    const image = context.createImageData(Math.max(w, 1), Math.max(h, 1));
    const pixels = new Uint32Array(image.data.buffer);
    const most = new Float32Array(w);
    for (let y = 0; y < h; y += 1) {
      most.fill(NaN);
      for (let place = y * by; place < Math.min((y + 1) * by, this.order.length); place += 1) {
        const begin = this.order[place] * columns;
        for (let column = 0; column < columns; column += 1) {
          const value = this.values[begin + column];
          const at = column >> lx;
          if (!(most[at] >= value) && value === value) most[at] = value;
        }
      }
      for (let x = 0; x < w; x += 1) pixels[y * w + x] = this.scale.color(most[x]);
    }
    context.putImageData(image, 0, 0);
    this.levels.set(key, picture);
    this.counts.levels += 1;
    return picture;
  }

  draw() {
    const { context, plot, view, dpr } = this;
    context.setTransform(dpr, 0, 0, dpr, 0, 0);
    context.fillStyle = this.colors.page;
    context.fillRect(0, 0, this.width, this.height);
    context.font = FONT;
    if (this.order.length === 0) return;
    context.fillStyle = this.hatch;
    context.fillRect(plot.x, plot.y, plot.w, plot.h);
    // A cell that stands out has a pixel and a half at least.
    const fits = (cells, pixels) => Math.max(0, Math.ceil(Math.log2((1.5 * cells) / (pixels * dpr))));
    const [lx, ly] = [fits(view.w, plot.w), fits(view.h, plot.h)];
    const picture = this.level(lx, ly);
    const [bx, by] = [1 << lx, 1 << ly];
    context.save();
    context.beginPath();
    context.rect(plot.x, plot.y, plot.w, plot.h);
    context.clip();
    context.imageSmoothingEnabled = false;
    context.drawImage(picture, view.x / bx, view.y / by, view.w / bx, view.h / by, plot.x, plot.y, plot.w, plot.h);
    context.restore();
    this.drawStrip();
    this.drawMeans(by);
    this.drawAxes();
    if (this.hovered && !this.selected) this.mark(this.hovered, this.colors.soft);
    if (this.selected) this.mark(this.selected, this.colors.select);
  }

  /** The longest step of each column, above the map. */
  drawStrip() {
    const { context, plot, view } = this;
    const wall = this.model.wallNs;
    const [first, last] = [Math.floor(view.x), Math.min(wall.length, Math.ceil(view.x + view.w))];
    this.strip ??= stripScale(wall);
    const { most, isClipped } = this.strip;
    context.save();
    context.beginPath();
    context.rect(plot.x, 0, plot.w, STRIP);
    context.clip();
    context.fillStyle = this.colors.hatch;
    const width = plot.w / view.w;
    const stride = Math.max(1, Math.floor((last - first) / (2 * plot.w)));
    for (let column = first - (first % stride); column < last; column += stride) {
      let ns = 0;
      for (let at = Math.max(0, column); at < Math.min(column + stride, wall.length); at += 1) ns = Math.max(ns, wall[at]);
      const height = (STRIP - 2) * Math.min(1, ns / most);
      context.fillStyle = ns > most ? this.colors.bad : this.colors.hatch;
      context.fillRect(plot.x + (column - view.x) * width, STRIP - height, Math.max(1, width * stride), height);
    }
    context.restore();
    context.fillStyle = this.colors.soft;
    context.textAlign = 'right';
    context.textBaseline = 'top';
    context.fillText(`${isClipped ? 'cut at ' : ''}${time(most)}`, plot.x - 6, 0);
    context.textBaseline = 'bottom';
    context.fillText('step time', plot.x - 6, STRIP - 8);
  }

  /** How much longer than its peers each row took on average, beside the map: what lasts shows here even if no single cell stands out. */
  drawMeans(by) {
    const { context, plot, view } = this;
    const means = this.model.meanNs;
    const most = means.reduce((most, ns) => Math.max(most, ns ?? 0), 0);
    const left = plot.x + plot.w + 8;
    context.fillStyle = this.colors.soft;
    context.textAlign = 'left';
    context.textBaseline = 'top';
    context.fillText('mean beyond', left, STRIP - 28);
    context.fillText(most > 0 ? `up to ${time(most)}` : 'none', left, STRIP - 13);
    if (most <= 0) return;
    const cell = plot.h / view.h;
    for (let place = Math.floor(view.y); place < Math.min(view.y + view.h, this.order.length); place += by) {
      let [ns, row] = [0, this.order[place]];
      for (const at of this.order.slice(place, place + by)) if ((means[at] ?? 0) > ns) [ns, row] = [means[at], at];
      const [from, to] = [Math.max(plot.y, plot.y + (place - view.y) * cell), Math.min(plot.y + plot.h, plot.y + (place + by - view.y) * cell)];
      context.fillStyle = this.model.ranksOf(row).some((rank) => NAMED.has(rank)) ? this.colors.bad : this.colors.soft;
      context.fillRect(left, from, ((MARGIN - 10) * ns) / most, Math.max(1, to - from - (to - from > 4 ? 1 : 0)));
    }
  }

  drawAxes() {
    const { context, plot, view } = this;
    context.strokeStyle = this.colors.line;
    context.strokeRect(plot.x - 0.5, plot.y - 0.5, plot.w + 1, plot.h + 1);
    context.fillStyle = this.colors.soft;
    context.textBaseline = 'top';
    const [cellW, cellH] = [plot.w / view.w, plot.h / view.h];
    const stride = nice(Math.max(1, 70 / cellW));
    const bottom = plot.y + plot.h;
    for (let column = Math.ceil(view.x / stride) * stride; column < view.x + view.w && column < this.model.columns; column += stride) {
      const x = plot.x + (column + 0.5 - view.x) * cellW;
      if (x < plot.x || x > plot.x + plot.w) continue;
      context.fillRect(x - 0.5, bottom, 1, 4);
      context.textAlign = x > plot.x + plot.w - 30 ? 'right' : 'center';
      context.fillText(this.model.columnLabel(column), x, bottom + 6);
    }
    context.textAlign = 'right';
    context.fillText('step', plot.x - 6, bottom + 6);
    context.textBaseline = 'middle';
    // The ranks that are named come first; the others where there is room.
    const taken = [];
    const label = (place, color, sign) => {
      const y = plot.y + (place + 0.5 - view.y) * cellH;
      if (y < plot.y || y > plot.y + plot.h || taken.some((other) => Math.abs(other - y) < 13)) return;
      taken.push(y);
      context.fillStyle = color;
      context.textAlign = 'right';
      context.fillText(`${this.model.rowLabel(this.order[place])}${sign}`, plot.x - 6, y);
      context.fillRect(plot.x - 4, y - 0.5, 4, 1);
    };
    for (const rank of NAMED.keys()) {
      const place = this.placeOfRow.get(this.model.rowOf(rank));
      if (place !== undefined) label(place, this.colors.bad, ' ▸');
    }
    const step = nice(Math.max(1, 28 / cellH));
    for (let place = Math.ceil(view.y / step) * step; place < view.y + view.h && place < this.order.length; place += step) {
      label(place, this.colors.soft, '');
    }
    context.fillStyle = this.colors.soft;
    context.textAlign = 'left';
    context.textBaseline = 'bottom';
    context.save();
    context.translate(12, plot.y + plot.h / 2);
    context.rotate(-Math.PI / 2);
    context.textAlign = 'center';
    context.fillText('rank', 0, 0);
    context.restore();
  }

  /** A cross through a cell. */
  mark(place, color) {
    const { context, plot, view } = this;
    const at = this.placeOfRow.get(place.row);
    if (at === undefined) return;
    const [cellW, cellH] = [plot.w / view.w, plot.h / view.h];
    const [x, y] = [plot.x + (place.column - view.x) * cellW, plot.y + (at - view.y) * cellH];
    context.save();
    context.beginPath();
    context.rect(plot.x - 4, 0, plot.w + 8, plot.y + plot.h + 4);
    context.clip();
    context.fillStyle = color;
    context.globalAlpha = 0.35;
    context.fillRect(x + cellW / 2 - 0.5, 0, 1, y);
    context.fillRect(x + cellW / 2 - 0.5, y + cellH, 1, plot.h);
    context.fillRect(plot.x - 4, y + cellH / 2 - 0.5, x - plot.x + 4, 1);
    context.fillRect(x + cellW, y + cellH / 2 - 0.5, plot.w, 1);
    context.globalAlpha = 1;
    context.strokeStyle = color;
    context.lineWidth = 2;
    const [w, h] = [Math.max(cellW, 7), Math.max(cellH, 7)];
    context.strokeRect(x + cellW / 2 - w / 2 - 1, y + cellH / 2 - h / 2 - 1, w + 2, h + 2);
    context.restore();
  }

  /** The middle of a cell, in pixels of the canvas; undefined if it is not shown. */
  point(row, column) {
    const { plot, view } = this;
    const at = this.placeOfRow.get(row);
    if (at === undefined) return undefined;
    return { x: plot.x + ((column + 0.5 - view.x) * plot.w) / view.w, y: plot.y + ((at + 0.5 - view.y) * plot.h) / view.h };
  }

  /** The cell at a point of the canvas. */
  at(x, y) {
    const { plot, view } = this;
    if (x < plot.x || y < plot.y || x >= plot.x + plot.w || y >= plot.y + plot.h) return undefined;
    const place = Math.floor(view.y + ((y - plot.y) * view.h) / plot.h);
    const column = Math.floor(view.x + ((x - plot.x) * view.w) / plot.w);
    if (place >= this.order.length || column >= this.model.columns) return undefined;
    return { row: this.order[place], column };
  }

  zoom(factor, point, { x = true, y = true } = {}) {
    const { plot, view } = this;
    const center = point ?? { x: plot.x + plot.w / 2, y: plot.y + plot.h / 2 };
    const along = (begin, length, most, share) => {
      const now = Math.min(most, Math.max(Math.min(LEAST_CELLS, most), length * factor));
      return [begin + (length - now) * share, now];
    };
    if (x) [view.x, view.w] = along(view.x, view.w, this.model.columns, (center.x - plot.x) / plot.w);
    if (y) [view.y, view.h] = along(view.y, view.h, this.order.length, (center.y - plot.y) / plot.h);
    this.pan(0, 0);
  }

  /** By cells. */
  pan(x, y) {
    const { view } = this;
    view.x = Math.min(Math.max(0, view.x + x), Math.max(0, this.model.columns - view.w));
    view.y = Math.min(Math.max(0, view.y + y), Math.max(0, this.order.length - view.h));
    this.later();
  }

  reset() {
    Object.assign(this.view, { x: 0, y: 0, w: this.model.columns, h: this.order.length });
    this.later();
  }

  /** Selects a cell, and moves the view to it if it is outside. */
  select(place) {
    this.selected = place;
    const { view } = this;
    const row = place && this.placeOfRow.get(place.row);
    if (place && row !== undefined) {
      if (place.column < view.x || place.column + 1 > view.x + view.w) view.x = place.column - view.w / 2;
      if (row < view.y || row + 1 > view.y + view.h) view.y = row - view.h / 2;
      this.pan(0, 0);
    }
    this.later();
  }

  listen() {
    const { canvas } = this;
    let drag;
    const point = (event) => ({ x: event.offsetX, y: event.offsetY });
    canvas.addEventListener('pointerdown', (event) => {
      if (event.button !== 0) return;
      drag = { ...point(event), isMoved: false };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener('pointermove', (event) => {
      const now = point(event);
      if (drag && (drag.isMoved || Math.hypot(now.x - drag.x, now.y - drag.y) > 4)) {
        canvas.classList.add('moving');
        this.pan(((drag.x - now.x) * this.view.w) / this.plot.w, ((drag.y - now.y) * this.view.h) / this.plot.h);
        drag = { ...now, isMoved: true };
        this.hover(undefined);
        return;
      }
      this.hover(this.at(now.x, now.y), now);
    });
    canvas.addEventListener('pointerup', (event) => {
      const now = point(event);
      if (drag && !drag.isMoved) this.on.select(this.at(now.x, now.y));
      drag = undefined;
      canvas.classList.remove('moving');
    });
    canvas.addEventListener('pointercancel', () => {
      drag = undefined;
      canvas.classList.remove('moving');
    });
    canvas.addEventListener('pointerleave', () => this.hover(undefined));
    canvas.addEventListener('dblclick', () => this.reset());
    canvas.addEventListener(
      'wheel',
      (event) => {
        // The page scrolls until the map is wanted.
        if (!event.ctrlKey && document.activeElement !== canvas) return;
        event.preventDefault();
        const delta = event.deltaY || event.deltaX;
        this.zoom(2 ** (Math.max(-200, Math.min(200, delta)) / 240), point(event), { y: !event.shiftKey });
      },
      { passive: false },
    );
    canvas.addEventListener('keydown', (event) => this.key(event));
    new ResizeObserver(() => this.width !== Math.max(240, canvas.parentElement.clientWidth) && this.resize()).observe(canvas.parentElement);
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const far = event.shiftKey ? 10 : 1;
    const page = Math.max(1, Math.floor(this.view.h / 2));
    const moves = { ArrowLeft: [-far, 0], ArrowRight: [far, 0], ArrowUp: [0, -far], ArrowDown: [0, far], PageUp: [0, -page], PageDown: [0, page] };
    const ends = { Home: 0, End: this.model.columns - 1 };
    if (event.key in moves || event.key in ends) {
      const now = this.selected ?? this.on.first() ?? { row: this.order[0], column: 0 };
      const [x, y] = this.selected ? (moves[event.key] ?? [0, 0]) : [0, 0];
      const place = Math.min(this.order.length - 1, Math.max(0, (this.placeOfRow.get(now.row) ?? 0) + y));
      const column = ends[event.key] ?? Math.min(this.model.columns - 1, Math.max(0, now.column + x));
      if (this.order.length > 0) this.on.select({ row: this.order[place], column });
    } else if (event.key === '+' || event.key === '=') this.zoom(1 / 1.5, this.selected && this.point(this.selected.row, this.selected.column));
    else if (event.key === '-') this.zoom(1.5);
    else if (event.key === '0') this.reset();
    else if (event.key === 'Escape') this.on.select(undefined);
    else return;
    event.preventDefault();
  }

  /** Shows what a cell is beside the pointer. */
  hover(place, point) {
    this.hovered = place;
    this.later();
    this.tip.hidden = !place;
    if (!place) return;
    const [title, ...lines] = this.on.describe(place);
    this.tip.replaceChildren(element('strong', {}, title), lines.join('\n'));
    const right = point.x + 18 + this.tip.offsetWidth > this.width;
    this.tip.style.left = `${Math.max(0, right ? point.x - 14 - this.tip.offsetWidth : point.x + 16)}px`;
    this.tip.style.top = `${Math.min(point.y + 14, this.height - this.tip.offsetHeight)}px`;
  }
}

/** The length of a step that fills the strip, and whether longer ones are cut. */
function stripScale(wall) {
  const longest = wall.reduce((most, ns) => Math.max(most, ns), 1);
  const usual = quantile(wall, 0.5);
  const isClipped = usual > 0 && longest > CLIPPED * usual;
  return { most: isClipped ? (CLIPPED / 2) * usual : longest, isClipped };
}

/** 1, 2 or 5 times a power of ten, not below a number. */
function nice(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((part) => part * power).find((value) => value >= least * 0.999);
}
