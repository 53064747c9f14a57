// All steps, or sums of them, in one table that searches, filters and sorts.

function causeTrack(causes, most) {
  return el("div", { class: "track", "aria-hidden": "true" }, ...CAUSES.map((cause) => piece(most ? causes(cause) / most : 0, `--${cause}`)));
}

function stepColumns(steps, total) {
  const text = (name, title, width) => ({ name, title, width, value: (i) => steps.text(name, i), cell: (i) => steps.text(name, i) });
  const number = (name, title, width, value, cell, explain) => ({ name, title, width, number: true, value, cell, explain });
  return [
    text("op", "Step", 250),
    { name: "kind", title: "Kind", width: 160, value: (i) => steps.text("kind", i), cell: (i) => words(steps.text("kind", i)) },
    text("path", "Layer", 170),
    text("phase", "Phase", 88),
    number("ipu", "IPU", 56, (i) => steps.number("ipu", i), (i) => String(steps.number("ipu", i))),
    number("cycles", "Cycles", 96, (i) => steps.once[i], (i) => whole(steps.once[i]), "Cycles of one run"),
    number("time", "Time", 88, (i) => steps.once[i], (i) => timeText(steps.seconds(steps.once[i])), "Time of one run"),
    { name: "causes", title: "Causes", width: 120, number: true, explain: "Compute, exchange, sync, host and links as parts of the step", value: (i) => steps.once[i], cell: (i) => causeTrack((cause) => steps.number(cause, i), steps.once[i]) },
    number("share", "Share", 78, (i) => steps.all(i), (i) => percent(steps.all(i) / total), "Part of all cycles of a call, over all IPUs"),
    number("rate", "FLOP/s", 126, (i) => (steps.once[i] ? steps.number("flops", i) / steps.once[i] : 0), (i) => (steps.number("flops", i) && steps.once[i] ? `${flopsText(steps.number("flops", i) / steps.seconds(steps.once[i]))}/s` : "–"), "Arithmetic per second while it runs"),
    number("tiles", "Tiles", 68, (i) => steps.number("tiles_used", i), (i) => (steps.number("tiles_used", i) ? whole(steps.number("tiles_used", i)) : "–"), "Tiles that compute"),
    number("live", "Live", 90, (i) => steps.number("live_bytes", i), (i) => (steps.number("live_bytes", i) ? kibi(steps.number("live_bytes", i)) : "–"), "Bytes on the fullest tile that live through it"),
    number("temporary", "Temporary", 94, (i) => steps.number("temporary_bytes", i), (i) => (steps.number("temporary_bytes", i) ? kibi(steps.number("temporary_bytes", i)) : "–"), "Bytes on the fullest tile that it needs itself"),
    text("plan", "Plan", 210),
  ];
}

function sumColumns(title, total, clock) {
  let most = 0;
  return { columns: [
    { name: "name", title, width: 320, value: (sum) => sum.name, cell: (sum) => sum.name || "(none)" },
    { name: "steps", title: "Steps", width: 80, number: true, value: (sum) => sum.steps, cell: (sum) => whole(sum.steps) },
    { name: "cycles", title: "Cycles per call", width: 150, number: true, value: (sum) => sum.cycles, cell: (sum) => whole(sum.cycles) },
    { name: "time", title: "Time per call", width: 120, number: true, value: (sum) => sum.cycles, cell: (sum) => timeText(sum.cycles / clock) },
    { name: "causes", title: "Causes", width: 220, number: true, value: (sum) => sum.cycles, cell: (sum) => causeTrack((cause) => sum.causes[cause], most) },
    { name: "share", title: "Share", width: 90, number: true, value: (sum) => sum.cycles, cell: (sum) => percent(sum.cycles / total) },
    { name: "rate", title: "FLOP/s", width: 130, number: true, value: (sum) => (sum.cycles ? sum.flops / sum.cycles : 0), cell: (sum) => (sum.flops && sum.cycles ? `${flopsText((sum.flops * clock) / sum.cycles)}/s` : "–") },
  ], scaleTo(sums) { most = sums.reduce((top, sum) => Math.max(top, sum.cycles), 0); } };
}

function operatorsSection(report, steps) {
  if (!steps.count) return;
  const clock = report.summary.clock_hz;
  let total = 0;
  for (let i = 0; i < steps.count; i += 1) total += steps.all(i);
  total = total || 1;
  const everything = Array.from({ length: steps.count }, (_, i) => i);
  const panel = el("div", { class: "chosen", id: "chosen-row", "aria-live": "polite" }, el("p", { class: "muted" }, "Choose a row to see all its figures. Words must all match; kind:matmul, phase:backward or op:… look in one column."));
  const table = new BigTable({
    id: "operators-grid", label: "Steps of the program", columns: stepColumns(steps, total), sort: "cycles",
    choose: (row) => panel.replaceChildren(...(typeof row === "number"
      ? [el("h3", {}, steps.text("op", row)), definition(steps.facts(row))]
      : [el("h3", {}, row.name || "(none)"), definition([["Steps", whole(row.steps)], ["Per call", `${timeText(row.cycles / clock)}, ${whole(row.cycles)} cycles`], ...CAUSES.filter((cause) => row.causes[cause]).map((cause) => [capital(cause), percent(row.causes[cause] / row.cycles)])])])),
  });
  const state = { text: "", phase: "", ipu: "", group: "" };
  const count = el("span", { class: "count", id: "operators-count", role: "status" });
  const names = { kind: (i) => steps.text("kind", i), layer: (i) => shortLayer(steps.text("path", i)), path: (i) => steps.text("path", i), source: (i) => steps.text("source", i), phase: (i) => steps.text("phase", i), ipu: (i) => `IPU ${steps.number("ipu", i)}` };
  const update = () => {
    const match = searcher(state.text);
    const found = everything.filter((i) => (!state.phase || steps.text("phase", i) === state.phase) && (!state.ipu || steps.number("ipu", i) === Number(state.ipu))
      && match({ op: steps.text("op", i), kind: steps.text("kind", i), layer: steps.text("path", i), source: steps.text("source", i), plan: steps.text("plan", i), phase: steps.text("phase", i) }));
    const cycles = found.reduce((sum, i) => sum + steps.all(i), 0);
    count.textContent = `${whole(found.length)} of ${plural(steps.count, "step")}, ${percent(cycles / total)} of the cycles`;
    if (!state.group) return table.setRows(found);
    const picked = { count: found.length, once: found.map((i) => steps.once[i]), runs: found.map((i) => steps.runs[i]), all: (k) => steps.all(found[k]), number: (name, k) => steps.number(name, found[k]) };
    const sums = groupSteps(picked, (k) => names[state.group](found[k]));
    table.sums.scaleTo(sums);
    return table.setRows(sums);
  };
  const regroup = (group) => {
    state.group = group;
    if (group) {
      table.sums = sumColumns(capital(group), total, clock);
      table.setColumns(table.sums.columns, "cycles");
    } else table.setColumns(stepColumns(steps, total), "cycles");
    update();
  };
  let waiting = 0;
  const search = el("input", { type: "search", class: "search", id: "operators-search", placeholder: "Search step, kind, layer, plan…", "aria-label": "Search steps", oninput: (event) => {
    clearTimeout(waiting);
    state.text = event.target.value;
    waiting = setTimeout(update, 80);
  } });
  const distinct = (of) => [...new Set(everything.map(of))];
  const phases = distinct((i) => steps.text("phase", i)).map((phase) => [phase, phase]);
  const ipus = distinct((i) => steps.number("ipu", i)).sort((a, b) => a - b).map((ipu) => [ipu, `IPU ${ipu}`]);
  section("operators", "Operators", null,
    el("div", { class: "toolbar" }, search,
      chooser("Phase", [["", "All phases"], ...phases], (value) => { state.phase = value; update(); }),
      ipus.length > 1 ? chooser("IPU", [["", "All IPUs"], ...ipus], (value) => { state.ipu = value; update(); }) : null,
      chooser("Sum by", [["", "Single steps"], ["kind", "Sum by kind"], ["layer", "Sum by layer"], ["path", "Sum by full path"], ["source", "Sum by framework operator"], ["phase", "Sum by phase"], ["ipu", "Sum by IPU"]], regroup),
      count),
    table.node, panel);
  update();
}
