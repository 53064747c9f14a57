// The execution timeline: a lane for each IPU, on a canvas, from a whole call down to one step.

const TRACKS = { block: 16, op: 16, cause: 40, gap: 14 };
const laneHeight = (lanes) => (lanes.ipus.length > 16 ? 36 : TRACKS.block + TRACKS.cause + TRACKS.gap);

function drawTimeline(chart, context, lanes, clock) {
  const height = laneHeight(lanes);
  const under = height - TRACKS.gap - TRACKS.block;
  const perPixel = chart.span / chart.inner;
  // Names take room from the causes only once they can be read.
  const named = (block) => under > TRACKS.op * 2 && block.group.cycles / Math.max(1, block.group.numbers.length) / perPixel >= 6;
  lanes.ipus.forEach((ipu, row) => {
    const top = chart.edge.top + row * height;
    context.fillStyle = colour("--text");
    context.textAlign = "right";
    context.textBaseline = "middle";
    context.fillText(`${row === chart.lane ? "▸ " : ""}IPU ${ipu}`, chart.edge.left - 10, top + (height - TRACKS.gap) / 2);
    context.fillStyle = colour("--idle");
    context.fillRect(chart.edge.left, top, chart.inner, height - TRACKS.gap);
    context.save();
    context.beginPath();
    context.rect(chart.edge.left, top, chart.inner, height);
    context.clip();
    const visible = lanes.between(ipu, chart.from, chart.to);
    for (const block of visible) drawBlock(chart, context, block, top);
    const names = visible.some(named);
    drawCauses(chart, context, lanes, visible, top + TRACKS.block + (names ? TRACKS.op : 0), under - (names ? TRACKS.op : 0));
    if (names) for (const block of visible) drawNames(chart, context, lanes, block, top + TRACKS.block, under);
    context.restore();
  });
  chart.drawAxis((value, step) => tickTime(value / clock, step / clock), "time", clock);
  if (chart.cursor > chart.edge.left) {
    context.strokeStyle = colour("--text");
    chart.line(Math.round(chart.cursor) + 0.5, 4, Math.round(chart.cursor) + 0.5, chart.height - chart.edge.bottom);
  }
}

function drawBlock(chart, context, block, top) {
  const x = chart.toPixel(block.start);
  const width = Math.max(0.6, chart.toPixel(block.end) - x);
  context.fillStyle = colour(phaseColour(block.group.phase));
  context.fillRect(x, top, width > 3 ? width - 1 : width, TRACKS.block - 1);
  const long = blockName(block);
  const short = block.microBatch < 0 ? block.group.phase : `${block.group.phase[0].toUpperCase()}${block.microBatch}`;
  const left = Math.max(x, chart.edge.left);
  const room = Math.min(x + width, chart.width) - left - 8;
  const text = [long, short].find((one) => context.measureText(one).width < room);
  if (!text) return;
  context.fillStyle = colour("--surface");
  context.textAlign = "left";
  context.textBaseline = "middle";
  context.fillText(text, left + 4, top + TRACKS.block / 2);
}

// Each column of pixels is cut as its time is: zoomed out it shows shares, zoomed in single steps.
function drawCauses(chart, context, lanes, visible, top, height) {
  const early = new Float64Array(CAUSE_ORDER.length);
  const late = new Float64Array(CAUSE_ORDER.length);
  const paints = CAUSE_ORDER.map((cause) => colour(`--${cause}`));
  const perPixel = chart.span / chart.inner;
  let number = 0;
  for (let x = 0; x < chart.inner; x += 1) {
    const from = chart.from + x * perPixel;
    const to = from + perPixel;
    while (number < visible.length && visible[number].end <= from) number += 1;
    const sums = CAUSE_ORDER.map(() => 0);
    for (let k = number; k < visible.length && visible[k].start < to; k += 1) {
      const block = visible[k];
      if (!block.group.numbers.length) continue;
      lanes.before(block.group, Math.max(0, from - block.start), early);
      lanes.before(block.group, Math.max(0, Math.min(to, block.end) - block.start), late);
      for (let c = 0; c < sums.length; c += 1) sums[c] += late[c] - early[c];
    }
    let y = top + height;
    for (let c = sums.length - 1; c >= 0; c -= 1) {
      const part = (sums[c] / perPixel) * height;
      if (part <= 0) continue;
      context.fillStyle = paints[c];
      context.fillRect(chart.edge.left + x, y - part, 1, part);
      y -= part;
    }
  }
}

// Names of steps, once they have room.
function drawNames(chart, context, lanes, block, top, height) {
  const { group } = block;
  if (!group.numbers.length) return;
  const first = lanes.stepAt(group, Math.max(0, chart.from - block.start));
  context.textAlign = "left";
  context.textBaseline = "middle";
  for (let k = first; k < group.numbers.length; k += 1) {
    const x = chart.toPixel(block.start + group.starts[k]);
    if (x > chart.width) break;
    const right = chart.toPixel(block.start + group.starts[k + 1]);
    context.fillStyle = colour("--strong");
    if (right - x > 5) context.fillRect(x, top, 1, height);
    const left = Math.max(x, chart.edge.left);
    const room = right - left - 8;
    if (room < 24) continue;
    let name = lanes.steps.text("op", group.numbers[k]);
    if (context.measureText(name).width > room) {
      const letters = Math.floor(name.length * room / context.measureText(name).width) - 1;
      if (letters < 4) continue;
      name = `…${name.slice(-letters)}`; // names differ at their end
    }
    context.fillStyle = colour("--text");
    context.fillText(name, left + 5, top + TRACKS.op / 2);
  }
}

function timelineSection(report, steps) {
  const lanes = new Lanes(report, steps);
  if (!lanes.blocks.length || lanes.end <= 0) return;
  const clock = report.summary.clock_hz;
  const panel = el("div", { class: "chosen", id: "chosen-step", "aria-live": "polite" }, el("p", { class: "muted" }, "Click a step, or press Enter for the one in the middle of a lane, to keep its figures here."));
  const at = (x, y, self) => {
    const row = Math.floor((y - self.edge.top) / laneHeight(lanes));
    if (row < 0 || row >= lanes.ipus.length || x < self.edge.left) return null;
    const time = self.toValue(x);
    const block = lanes.between(lanes.ipus[row], time, time + 1e-6)[0];
    if (!block) return { ipu: lanes.ipus[row], time };
    const step = block.group.numbers[lanes.stepAt(block.group, time - block.start)];
    return { ipu: lanes.ipus[row], time, block, step };
  };
  const keep = (found) => {
    if (found?.step === undefined) return;
    panel.replaceChildren(el("h3", {}, steps.text("op", found.step)), definition([["At", timeText(found.time / clock)], ["In", blockName(found.block)], ...steps.facts(found.step)]));
  };
  const chart = new Chart({
    label: "What each IPU does over one call", least: 60, edge: { left: 62, top: 12 },
    height: () => EDGE.bottom + 12 + laneHeight(lanes) * lanes.ipus.length, extent: () => lanes.end,
    draw: (self, context) => drawTimeline(self, context, lanes, clock),
    hover(x, y, self) {
      const found = at(x, y, self);
      if (!found) return null;
      if (found.step === undefined) return [[`IPU ${found.ipu} waits`], [null, `at ${timeText(found.time / clock)}`]];
      return [[steps.text("op", found.step)], [null, `IPU ${found.ipu}: ${blockName(found.block)}`], ...steps.facts(found.step).filter(Boolean).slice(0, 8).map(([name, value]) => [null, `${name}: ${value}`])];
    },
    pick: (x, y, self) => keep(at(x, y, self)),
  });
  // Up and down choose a lane, so that keys reach every IPU.
  const lane = (number) => {
    chart.lane = Math.min(Math.max(0, number), lanes.ipus.length - 1);
    chart.cursor = chart.edge.left + chart.inner / 2;
    chart.redraw();
  };
  chart.canvas.addEventListener("keydown", (event) => {
    const now = chart.lane ?? 0;
    if (event.key === "ArrowUp" || event.key === "ArrowDown") {
      event.preventDefault();
      lane(chart.lane === undefined ? 0 : now + (event.key === "ArrowDown" ? 1 : -1));
    } else if (event.key === "Enter") {
      lane(now);
      keep(at(chart.cursor, chart.edge.top + now * laneHeight(lanes) + 5, chart));
    }
  });
  chart.canvas.addEventListener("blur", () => { chart.lane = undefined; });
  const busy = lanes.ipus.map((ipu) => `IPU ${ipu} ${percent(lanes.busy(ipu) / lanes.end)}`).join(", ");
  const legend = el("ul", { class: "legend" },
    ...["forward", "backward", "update"].map((phase) => el("li", {}, swatch(`--${phase}`), phase)),
    ...CAUSES.map((cause) => el("li", {}, swatch(`--${cause}`), cause)), el("li", {}, swatch("--idle"), "waits"));
  const shown = lanes.complete ? "One call." : `The first ${plural(lanes.blocks.length, "block")} of a call.`;
  section("timeline", "Timeline", `${shown} Above, what a stage works on; below, the steps and what they spend their time on.`,
    el("div", { class: "toolbar" }, el("span", { class: "muted small" }, `Busy: ${busy}`), el("span", { class: "grow" }), ...zoomButtons(chart)),
    chart.node, legend,
    el("p", { class: "muted small keys" }, "Drag to move. Zoom with ", el("kbd", {}, "Ctrl"), " and the wheel, a double click, or ", el("kbd", {}, "+"), " ", el("kbd", {}, "−"), " ", el("kbd", {}, "←"), " ", el("kbd", {}, "→"), " once the chart has the focus; ", el("kbd", {}, "↑"), " ", el("kbd", {}, "↓"), " choose a lane."),
    panel);
  chart.reset();
  return chart;
}
