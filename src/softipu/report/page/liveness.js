// What is live on the fullest tile while the program goes on, step by step.

function drawLiveness(chart, context, steps, numbers, memory) {
  const most = numbers.reduce((top, i) => Math.max(top, steps.bytes(i)), 0);
  const top = Math.max(memory.capacity, most) * 1.08;
  const bottom = chart.height - chart.edge.bottom;
  const scale = (bottom - chart.edge.top) / top;
  chart.drawValues(top, (size) => `${whole(size / 1024)} KiB`, true);
  chart.drawAxis((number) => (Number.isInteger(number) ? whole(number) : ""), "step");
  // One column for each pixel: the highest step in it, so no peak is lost when thousands share it.
  const last = Math.min(chart.width - chart.edge.right, Math.ceil(chart.toPixel(numbers.length)));
  for (let x = chart.edge.left; x < last; x += 1) {
    const first = Math.max(0, Math.floor(chart.toValue(x)));
    const end = Math.min(numbers.length, Math.max(first + 1, Math.ceil(chart.toValue(x + 1))));
    let peak = first;
    for (let k = first; k < end; k += 1) if (steps.bytes(numbers[k]) > steps.bytes(numbers[peak])) peak = k;
    if (peak >= numbers.length) continue;
    const live = steps.number("live_bytes", numbers[peak]);
    const temporary = steps.number("temporary_bytes", numbers[peak]);
    const always = Math.min(memory.always_live, live);
    let y = bottom;
    for (const [size, name] of [[always, "--c-state"], [live - always, "--c-activations"], [temporary, "--c-temporary"]]) {
      context.fillStyle = colour(name);
      context.fillRect(x, y - size * scale, 1, size * scale);
      y -= size * scale;
    }
  }
  drawPhases(chart, context, steps, numbers, bottom);
  capacityLine(chart, context, bottom - memory.capacity * scale, `capacity ${kibi(memory.capacity)}`);
  if (chart.cursor !== null && chart.cursor !== undefined) {
    context.strokeStyle = colour("--text");
    chart.line(Math.round(chart.cursor) + 0.5, chart.edge.top, Math.round(chart.cursor) + 0.5, bottom);
  }
}

// Where one phase ends and the next begins, with its name.
function drawPhases(chart, context, steps, numbers, bottom) {
  context.textAlign = "left";
  context.textBaseline = "top";
  let begin = 0;
  for (let k = 1; k <= numbers.length; k += 1) {
    const phase = steps.text("phase", numbers[begin]);
    if (k < numbers.length && steps.text("phase", numbers[k]) === phase) continue;
    const x = chart.toPixel(begin);
    const shown = Math.max(x, chart.edge.left);
    if (k > begin && begin > 0 && x > chart.edge.left && x < chart.width) {
      context.strokeStyle = colour("--strong");
      chart.line(Math.round(x) + 0.5, chart.edge.top - 8, Math.round(x) + 0.5, bottom);
    }
    if (chart.toPixel(k) - shown > context.measureText(phase).width + 10) {
      context.fillStyle = colour("--muted");
      context.fillText(phase, shown + 5, 1);
    }
    begin = k;
  }
}

function livenessSection(report, steps) {
  if (!report.memory.length || !steps.count) return;
  const perIpu = new Map(report.memory.map((memory) => [memory.ipu, []]));
  // Transfers whose memory the model doesn't say would look like empty tiles.
  for (let i = 0; i < steps.count; i += 1) if (steps.bytes(i)) perIpu.get(steps.number("ipu", i))?.push(i);
  let memory = report.memory[0];
  let numbers = perIpu.get(memory.ipu);
  const chart = new Chart({
    label: "Bytes on the fullest tile over the steps of the program", height: (width) => (width < 500 ? 220 : 280), least: 4,
    extent: () => numbers.length, draw: (self, context) => drawLiveness(self, context, steps, numbers, memory),
    step: (direction, self) => {
      const now = self.cursor === null || self.cursor === undefined ? self.from : self.toValue(self.cursor);
      const next = Math.min(Math.max(0, Math.floor(now) + direction), numbers.length - 1) + 0.5;
      if (next < self.from || next > self.to) self.show(next - self.span / 2, next + self.span / 2);
      return self.toPixel(next);
    },
    hover(x, y, self) {
      const at = Math.floor(self.toValue(x));
      if (at < 0 || at >= numbers.length) return null;
      const i = numbers[at];
      const used = steps.bytes(i);
      return [[steps.text("op", i)], [null, `step ${whole(at)} on IPU ${memory.ipu}, ${steps.text("phase", i)}`],
        [kibi(used), `on the fullest tile, ${percent(used / memory.capacity)} of it`],
        [null, `${kibi(steps.number("live_bytes", i))} live, ${kibi(steps.number("temporary_bytes", i))} temporary`]];
    },
  });
  const choose = (number) => {
    memory = report.memory[number];
    numbers = perIpu.get(memory.ipu);
    chart.reset();
  };
  const legend = el("ul", { class: "legend" },
    ...[["--c-state", "always live"], ["--c-activations", "live for now"], ["--c-temporary", "temporary, while the step runs"]].map(([name, text]) => el("li", {}, swatch(name), text)));
  section("liveness", "Liveness", "What the fullest tile holds at each step of one micro-batch and one update. The highest step of each pixel is drawn.",
    el("div", { class: "toolbar" }, ipuChoice("liveness-ipu", report.memory, choose), el("span", { class: "grow" }), ...zoomButtons(chart)), chart.node, legend);
  const tightest = report.memory.reduce((best, one, number) => (one.used / one.capacity > report.memory[best].used / report.memory[best].capacity ? number : best), 0);
  byId("liveness").querySelectorAll("input")[tightest].checked = true;
  choose(tightest);
}
