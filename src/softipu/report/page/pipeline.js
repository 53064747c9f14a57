// The pipeline: how evenly its stages are filled, and which micro-batch is where in each turn.

function stageRows(report, clock) {
  const stages = new Map();
  for (const group of report.timeline.groups.filter((one) => !ONCE.includes(one.phase))) {
    const key = group.ipu;
    const stage = stages.get(key) ?? { ipu: group.ipu, parts: [], total: 0 };
    const cycles = group.cycles.reduce((a, b) => a + b, 0);
    stage.parts.push([group.phase, cycles]);
    stage.total += cycles;
    stages.set(key, stage);
  }
  const rows = [...stages.values()].sort((a, b) => a.ipu - b.ipu);
  const busiest = Math.max(...rows.map((row) => row.total), 1);
  // Interleaved, a turn is twice the longest half of any IPU, so that even the busiest may wait.
  const slowest = report.timeline.interleaved ? report.timeline.turn : busiest;
  const node = el("div", { class: "bars", id: "balance" }, ...rows.map((row) => {
    const track = el("div", { class: "track" }, ...row.parts.map(([phase, cycles]) => piece(cycles / slowest, phaseColour(phase))));
    const waits = row.total >= slowest ? "sets the pace" : `waits ${percent(1 - row.total / slowest)}`;
    return el("div", { class: "bar" }, el("span", { class: "name" }, `IPU ${row.ipu}`), track, el("span", { class: "number" }, `${timeText(row.total / clock)} `, el("span", {}, waits)));
  }));
  const mean = rows.reduce((sum, row) => sum + row.total, 0) / rows.length;
  return [node, slowest, mean];
}

// Turns worth showing: filling, a few full ones, draining. A null stands for those left out.
function shownTurns(timeline) {
  const turns = timeline.micro_batches + timeline.depth;
  const head = timeline.depth + 3;
  if (turns <= head + timeline.depth + 2) return Array.from({ length: turns }, (_, t) => t);
  return [...Array.from({ length: head }, (_, t) => t), null, ...Array.from({ length: timeline.depth + 1 }, (_, t) => turns - timeline.depth - 1 + t)];
}

function turnsPicture(timeline) {
  const ipus = [...new Set(timeline.groups.map((group) => group.ipu))].sort((a, b) => a - b);
  const groups = timeline.groups.filter((group) => !ONCE.includes(group.phase));
  const turns = shownTurns(timeline);
  const cell = { width: 46, height: 19 };
  const perIpu = new Map(ipus.map((ipu) => [ipu, groups.filter((group) => group.ipu === ipu)]));
  const tallest = Math.max(...[...perIpu.values()].map((one) => one.length));
  const rowHeight = tallest * (cell.height + 2) + 8;
  const left = 52;
  const width = left + turns.length * (cell.width + 2) + 64;
  const picture = svg("svg", { width, height: ipus.length * rowHeight + 24, role: "img", "aria-label": "Micro-batches in the pipeline, turn by turn" });
  const box = (x, y, kind, text, title) => picture.append(svg("g", { class: kind }, svg("title", {}, title), svg("rect", { x, y, width: cell.width, height: cell.height, rx: 3 }), svg("text", { x: x + cell.width / 2, y: y + 13.5, "text-anchor": "middle" }, text)));
  ipus.forEach((ipu, row) => picture.append(svg("text", { class: "axis", x: 0, y: row * rowHeight + rowHeight / 2 }, `IPU ${ipu}`)));
  turns.forEach((turn, column) => {
    const x = left + column * (cell.width + 2);
    picture.append(svg("text", { class: "axis", x: x + cell.width / 2, y: ipus.length * rowHeight + 12, "text-anchor": "middle" }, turn === null ? "…" : whole(turn)));
    if (turn === null) return;
    ipus.forEach((ipu, row) => perIpu.get(ipu).forEach((group, k) => {
      const y = row * rowHeight + k * (cell.height + 2);
      const microBatch = turn - group.slot;
      if (microBatch < 0 || microBatch >= timeline.micro_batches) box(x, y, "idle", "", `IPU ${ipu} waits in turn ${turn}`);
      else box(x, y, group.phase, `${group.phase[0].toUpperCase()}${microBatch}`, `Turn ${turn}: ${group.phase} of micro-batch ${microBatch}, stage ${group.stage}`);
    }));
  });
  const updates = timeline.groups.filter((group) => group.phase === "update");
  for (const group of updates) box(left + turns.length * (cell.width + 2) + 8, ipus.indexOf(group.ipu) * rowHeight, "update", "update", `Weight update on IPU ${group.ipu}`);
  return el("div", { class: "turns", tabindex: "0", role: "group", "aria-label": "Turns of the pipeline" }, picture);
}

function pipelineSection(report) {
  const { timeline } = report;
  if (!timeline.pipelined) return;
  const [rows, slowest, mean] = stageRows(report, report.summary.clock_hz);
  const turns = timeline.micro_batches + timeline.depth;
  const order = timeline.interleaved ? "In each turn every IPU runs a forward stage, then a backward stage, and both wait for the slowest of either." : "In each turn every IPU works on another micro-batch, and all wait for the slowest.";
  const explanation = `${order} ${plural(timeline.micro_batches, "micro-batch", "micro-batches")} take ${plural(turns, "turn")}: ${percent(timeline.depth / turns)} of them to fill and drain. More micro-batches per update make that less.`;
  section("pipeline", "Pipeline", explanation,
    el("div", { class: "columns" },
      el("div", {}, el("h3", {}, "One full turn"), rows),
      el("div", {}, el("h3", {}, "If all were equal"), el("p", {}, `A turn would take ${timeText(mean / report.summary.clock_hz)} instead of ${timeText(slowest / report.summary.clock_hz)}: ${percent(slowest ? 1 - mean / slowest : 0)} less.`))),
    el("h3", { style: "margin-top:18px" }, "Turn by turn: F forward, B backward, with the number of the micro-batch"), turnsPicture(timeline));
}
