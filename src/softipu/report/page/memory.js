// Tile memory at its peak: an IPU's fullest tile, the mean of the others, and why bytes are there.

// The run that a tile belongs to; runs are sorted by their first tile.
function runAt(runs, tile) {
  let low = 0;
  let high = runs.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (runs[middle][0] <= tile) low = middle;
    else high = middle - 1;
  }
  return low;
}

function drawTiles(chart, context, memory) {
  const top = Math.max(memory.capacity, memory.used) * 1.08;
  const bottom = chart.height - chart.edge.bottom;
  const height = bottom - chart.edge.top;
  const y = (value) => bottom - (value / top) * height;
  chart.drawValues(top, (size) => `${whole(size / 1024)} KiB`, true);
  chart.drawAxis((tile) => whole(tile), "tiles");
  context.save();
  context.beginPath();
  context.rect(chart.edge.left, 0, chart.inner, chart.height);
  context.clip();
  memory.runs.forEach(([first, size], i) => {
    const last = i + 1 < memory.runs.length ? memory.runs[i + 1][0] : memory.count;
    const x = chart.toPixel(first);
    const right = chart.toPixel(last);
    if (right < chart.edge.left || x > chart.width) return;
    const width = Math.max(1, right - x - (right - x > 4 ? 1 : 0));
    const inside = Math.min(size, memory.capacity);
    context.fillStyle = colour(first === memory.tile ? "--compute" : "--c-state");
    context.fillRect(x, y(inside), width, bottom - y(inside));
    context.fillStyle = colour("--bad");
    if (size > inside) context.fillRect(x, y(size), width, y(inside) - y(size));
  });
  context.restore();
  markFullest(chart, context, memory, y(memory.used));
  capacityLine(chart, context, y(memory.capacity), `capacity ${kibi(memory.capacity)}`);
}

// A pointer at the fullest tile with its bytes, wherever in the chart it is.
function markFullest(chart, context, memory, y) {
  const x = chart.toPixel(memory.tile + 0.5);
  if (x < chart.edge.left - 1 || x > chart.width - chart.edge.right + 1) return;
  context.fillStyle = colour("--text");
  context.beginPath();
  context.moveTo(x, y - 3);
  context.lineTo(x - 5, y - 11);
  context.lineTo(x + 5, y - 11);
  context.fill();
  const text = `fullest tile: ${kibi(memory.used)}`;
  const left = x + 10 + context.measureText(text).width > chart.width - 130;
  context.textAlign = left ? "right" : "left";
  context.textBaseline = "middle";
  context.fillText(text, x + (left ? -9 : 9), y - 8);
}

function capacityLine(chart, context, y, text) {
  context.strokeStyle = colour("--text");
  context.setLineDash([5, 4]);
  context.lineWidth = 1.5;
  chart.line(chart.edge.left, y, chart.width - chart.edge.right, y);
  context.setLineDash([]);
  context.lineWidth = 1;
  // On a ground of its own: bars may reach above the line.
  const width = context.measureText(text).width + 10;
  const right = chart.width - chart.edge.right - 4;
  context.fillStyle = colour("--surface");
  context.fillRect(right - width, y - 19, width, 16);
  context.textAlign = "right";
  context.textBaseline = "middle";
  context.fillStyle = colour("--text");
  context.fillText(text, right - 5, y - 11);
}

function categoryTable(memory) {
  const names = Object.keys({ ...memory.categories, ...memory.all_tiles });
  const sum = (values) => Object.values(values).reduce((a, b) => a + b, 0);
  const all = sum(memory.all_tiles);
  const rows = names.map((name) => el("tr", {}, el("td", {}, swatch(categoryColour(name)), categoryName(name)),
    el("td", {}, kibi(memory.categories[name] ?? 0)), el("td", {}, percent((memory.categories[name] ?? 0) / memory.capacity)), el("td", {}, bytes(memory.all_tiles[name] ?? 0))));
  return el("table", { class: "mini", id: "categories" },
    el("thead", {}, el("tr", {}, el("th", {}, "At the peak"), el("th", {}, "Fullest tile"), el("th", {}, "of tile"), el("th", {}, "All tiles"))),
    el("tbody", {}, ...rows),
    el("tfoot", {}, el("tr", {}, el("td", {}, "Total"), el("td", {}, kibi(memory.used)), el("td", {}, percent(memory.used / memory.capacity)), el("td", {}, bytes(all)))));
}

function memorySection(report) {
  if (!report.memory.length) return;
  let memory = report.memory[0];
  const side = el("div");
  const chart = new Chart({
    label: "Bytes of an IPU's tiles at the peak, as far as the model knows them", height: (width) => (width < 500 ? 220 : 300), least: 8,
    extent: () => memory.count, draw: (self, context) => drawTiles(self, context, memory),
    step: (direction, self) => Math.min(Math.max(self.edge.left, (self.cursor ?? self.edge.left) + direction * Math.max(1, self.inner / self.span)), self.width - self.edge.right - 1),
    hover(x, y, self) {
      const tile = Math.floor(self.toValue(x));
      if (tile < 0 || tile >= memory.count || !memory.runs.length) return null;
      const run = runAt(memory.runs, tile);
      const [first, size] = memory.runs[run];
      const last = (memory.runs[run + 1]?.[0] ?? memory.count) - 1;
      const name = first === last ? `Tile ${whole(first)}` : `Tiles ${whole(first)} to ${whole(last)}`;
      return [[name, first === memory.tile ? "(the fullest)" : "(assumed)"], [null, `${kibi(size)}, ${percent(size / memory.capacity)} of ${kibi(memory.capacity)}`]];
    },
  });
  const choose = (number) => {
    memory = report.memory[number];
    const live = definition([["Always live", kibi(memory.always_live)], ["At the peak besides", kibi(memory.not_always_live_peak)], ["Peak at", memory.peak_step || "–"]]);
    side.replaceChildren(categoryTable(memory), live);
    chart.reset();
  };
  section("memory", "Memory", "Tile memory at the moment when an IPU needs most. Every tile must stay below the line. Modelled are the fullest tile and the sum of all; how the others share the rest, and which tile is the fullest, is assumed.",
    el("div", { class: "toolbar" }, ipuChoice("memory-ipu", report.memory, choose), el("span", { class: "grow" }), ...zoomButtons(chart)),
    el("div", { class: "split" }, chart.node, side));
  const tightest = report.memory.reduce((best, one, number) => (one.used / one.capacity > report.memory[best].used / report.memory[best].capacity ? number : best), 0);
  byId("memory").querySelectorAll("input")[tightest].checked = true;
  choose(tightest);
}
