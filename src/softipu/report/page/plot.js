// A canvas that knows its size, its colours and which part of the x axis it shows.

// Colours as the canvas wants them: custom properties with light-dark() are resolved by a probe.
const resolved = new Map();
themeListeners.push(() => resolved.clear());
function colour(name) {
  if (!resolved.has(name)) {
    const probe = el("span", { hidden: true });
    probe.style.color = `var(${name})`;
    document.body.append(probe);
    resolved.set(name, getComputedStyle(probe).color);
    probe.remove();
  }
  return resolved.get(name);
}

const FONT = '12px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif';
const EDGE = { left: 68, right: 14, top: 14, bottom: 26 };

// options: label, height(width), extent() -> largest x, least (smallest span), draw(chart),
// hover(x, y, chart) -> lines of the tooltip, pick(x, y), step(direction, chart) for arrow keys.
class Chart {
  constructor(options) {
    this.options = options;
    this.edge = { ...EDGE, ...options.edge };
    this.canvas = el("canvas", { tabindex: "0", role: "img", "aria-label": options.label });
    this.node = el("div", { class: options.least ? "chart pan" : "chart" }, this.canvas);
    this.context = this.canvas.getContext("2d");
    this.from = 0;
    this.to = 1;
    this.asked = false;
    this.awake = false;
    this.fingers = new Map();
    new ResizeObserver(() => this.resize()).observe(this.node);
    // What is far below the window is drawn when it comes near, or when there is time: the page
    // opens sooner.
    const wake = () => { this.awake = true; this.redraw(); };
    const eye = new IntersectionObserver((entries) => {
      if (!entries.at(-1).isIntersecting) return;
      eye.disconnect();
      wake();
    }, { rootMargin: "300px" });
    eye.observe(this.node);
    setTimeout(wake, 1500);
    themeListeners.push(() => this.redraw());
    this.listen();
  }

  get width() { return this.canvas.clientWidth; }
  get height() { return this.canvas.clientHeight; }
  get inner() { return Math.max(1, this.width - this.edge.left - this.edge.right); }
  get span() { return this.to - this.from; }
  toPixel(x) { return this.edge.left + ((x - this.from) / this.span) * this.inner; }
  toValue(pixel) { return this.from + ((pixel - this.edge.left) / this.inner) * this.span; }

  reset() {
    this.from = 0;
    this.to = Math.max(this.options.extent(), 1e-9);
    this.redraw();
  }

  show(from, to) {
    const most = Math.max(this.options.extent(), 1e-9);
    const span = Math.min(most, Math.max(this.options.least ?? most, to - from));
    const middle = (from + to) / 2;
    this.from = Math.min(Math.max(0, middle - span / 2), most - span);
    this.to = this.from + span;
    this.redraw();
  }

  zoom(factor, pixel = this.edge.left + this.inner / 2) {
    const at = this.toValue(pixel);
    const span = Math.min(Math.max(this.span / factor, this.options.least ?? 0), this.options.extent());
    const from = at - ((at - this.from) / this.span) * span;
    this.show(from, from + span);
  }

  pan(pixels) {
    const by = (pixels / this.inner) * this.span;
    const most = this.options.extent();
    const from = Math.min(Math.max(0, this.from + by), most - this.span);
    this.show(from, from + this.span);
  }

  resize() {
    const width = this.node.clientWidth;
    const height = this.options.height(width);
    const ratio = devicePixelRatio || 1;
    const [across, down] = [Math.round(width * ratio), Math.round(height * ratio)];
    if (this.canvas.width === across && this.canvas.height === down) return;
    this.canvas.style.height = `${height}px`;
    this.canvas.width = across;
    this.canvas.height = down;
    this.redraw();
  }

  redraw() {
    if (this.asked) return;
    this.asked = true;
    requestAnimationFrame(() => { this.asked = false; this.paint(); });
  }

  paint() {
    if (!this.awake || !this.canvas.width || !this.span) return;
    const ratio = this.canvas.width / Math.max(1, this.width);
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.context.clearRect(0, 0, this.width, this.height);
    this.context.font = FONT;
    this.options.draw(this, this.context);
  }

  // Lines with numbers at the left; `top` is the value at the upper edge.
  drawValues(top, text, binary) {
    const context = this.context;
    const bottom = this.height - this.edge.bottom;
    const step = niceStep(top, 6, binary);
    context.textAlign = "right";
    context.textBaseline = "middle";
    for (let value = 0; value <= top * 1.0001; value += step) {
      const y = Math.round(bottom - (value / top) * (bottom - this.edge.top)) + 0.5;
      context.strokeStyle = colour("--line");
      context.lineWidth = 1;
      this.line(this.edge.left, y, this.width - this.edge.right, y);
      context.fillStyle = colour("--muted");
      context.fillText(text(value), this.edge.left - 8, y);
    }
  }

  // Numbers below, at round places of `unit` (a cycle count that is one second, for instance).
  drawAxis(text, caption, unit = 1) {
    const context = this.context;
    const y = this.height - this.edge.bottom;
    const step = unit * niceStep(this.span / unit, Math.max(2, Math.floor(this.inner / 100)));
    context.textBaseline = "top";
    context.fillStyle = colour("--muted");
    context.textAlign = "left";
    context.fillText(caption, 10, y + 7);
    for (let value = Math.ceil(this.from / step) * step; value <= this.to * 1.000001; value += step) {
      const x = this.toPixel(value);
      context.strokeStyle = colour("--line");
      this.line(Math.round(x) + 0.5, y, Math.round(x) + 0.5, y + 4);
      const label = text(value, step);
      const half = context.measureText(label).width / 2;
      context.textAlign = "center";
      context.fillText(label, Math.min(Math.max(x, half + 2), this.width - half - 4), y + 7);
    }
  }

  line(x1, y1, x2, y2) {
    this.context.beginPath();
    this.context.moveTo(x1, y1);
    this.context.lineTo(x2, y2);
    this.context.stroke();
  }

  listen() {
    const { canvas, options } = this;
    const place = (event) => {
      const box = canvas.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };
    canvas.addEventListener("pointermove", (event) => this.moved(event, ...place(event)));
    canvas.addEventListener("pointerleave", () => { tip.hide(); this.cursor = null; this.redraw(); });
    canvas.addEventListener("pointerdown", (event) => {
      this.fingers.set(event.pointerId, event.clientX);
      this.dragged = 0;
      if (event.pointerType === "mouse") canvas.setPointerCapture(event.pointerId);
    });
    const up = (event) => {
      this.fingers.delete(event.pointerId);
      if (event.type === "pointerup" && this.dragged < 4) options.pick?.(...place(event), this);
    };
    canvas.addEventListener("pointerup", up);
    canvas.addEventListener("pointercancel", up);
    canvas.addEventListener("dblclick", (event) => { if (options.least) this.zoom(4, place(event)[0]); });
    canvas.addEventListener("wheel", (event) => this.wheel(event, place(event)[0]), { passive: false });
    canvas.addEventListener("keydown", (event) => this.key(event));
    canvas.addEventListener("blur", () => { tip.hide(); this.cursor = null; this.redraw(); });
  }

  moved(event, x, y) {
    const before = this.fingers.get(event.pointerId);
    if (before !== undefined && this.options.least) {
      const others = [...this.fingers].filter(([id]) => id !== event.pointerId);
      if (others.length) { // two fingers: their distance
        const [, other] = others[0];
        const was = Math.abs(before - other);
        const now = Math.abs(event.clientX - other);
        if (was > 8 && now > 8) this.zoom(now / was, x);
      } else this.pan(before - event.clientX);
      this.dragged += Math.abs(before - event.clientX);
      this.fingers.set(event.pointerId, event.clientX);
      tip.hide();
      return;
    }
    this.cursor = x;
    this.redraw();
    const lines = this.options.hover(x, y, this);
    if (lines) tip.show(event.clientX, event.clientY, lines);
    else tip.hide();
  }

  // The page must still scroll: the wheel zooms with Ctrl, or once the chart was clicked.
  wheel(event, x) {
    if (!this.options.least) return;
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) this.pan(event.deltaX);
    else if (event.ctrlKey || event.metaKey || document.activeElement === this.canvas) this.zoom(Math.exp(-event.deltaY / 300), x);
    else return;
    event.preventDefault();
  }

  key(event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const { least, step } = this.options;
    const deeds = { "+": () => this.zoom(1.6), "=": () => this.zoom(1.6), "-": () => this.zoom(1 / 1.6), 0: () => this.reset(), Home: () => this.reset() };
    if (least) Object.assign(deeds, { ArrowLeft: () => this.pan(-this.inner / 8), ArrowRight: () => this.pan(this.inner / 8) });
    if (step) Object.assign(deeds, { ArrowLeft: () => this.walk(-1), ArrowRight: () => this.walk(1) });
    const deed = deeds[event.key];
    if (!deed || (!least && !event.key.startsWith("Arrow"))) return;
    event.preventDefault();
    deed();
  }

  // Arrow keys move a read-out, as a pointer would.
  walk(direction) {
    const x = this.options.step(direction, this);
    this.cursor = x;
    this.redraw();
    const box = this.canvas.getBoundingClientRect();
    const lines = this.options.hover(x, this.height / 2, this);
    if (lines) tip.show(box.left + x, box.top + this.height / 2, lines);
  }
}

// Buttons that do with a click what the keys do.
function zoomButtons(chart) {
  const button = (text, label, deed) => el("button", { type: "button", class: "plain-button", "aria-label": label, title: label, onclick: deed }, text);
  return [button("−", "Zoom out", () => chart.zoom(1 / 2)), button("+", "Zoom in", () => chart.zoom(2)), button("Whole", "Show everything", () => chart.reset())];
}

// One radio button for each IPU, with how full its fullest tile is.
function ipuChoice(name, memories, choose) {
  const field = el("fieldset", { class: "choice" }, el("legend", { hidden: true }, "IPU"));
  memories.forEach((memory, number) => {
    const input = el("input", { type: "radio", name, value: number, checked: number === 0, onchange: () => choose(number) });
    const share = memory.used / memory.capacity;
    field.append(el("label", {}, input, el("span", {}, el("b", {}, `IPU ${memory.ipu}`), ` ${percent(share)}`), meter(share)));
  });
  return field;
}
