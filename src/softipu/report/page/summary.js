// The header, the figures asked for first, and where the time goes.

function header(report) {
  const { summary } = report;
  const places = summary.ipus * summary.replicas;
  const what = summary.training ? "Training" : "Inference";
  const replicas = summary.replicas > 1 ? `, ${whole(summary.replicas)} replicas of ${plural(summary.ipus, "IPU")}` : "";
  byId("top").append(
    el("div", { class: "title" }, el("h1", {}, summary.name),
      el("p", {}, `${what} on ${whole(places)} × ${summary.chip.product}${replicas}; ${plural(summary.batch, "sample")} per call`)),
    el("p", { class: `verdict ${summary.fits ? "good" : "bad"}`, id: "verdict" }, summary.fits ? "✓ Fits in memory" : "✗ Does not fit in memory"),
    themeButton(),
  );
  byId("made").textContent = `softipu ${report.softipu}, report version ${report.version}`;
}

function card(id, title, [value, unit], ...notes) {
  return el("div", { class: "card", id }, el("h3", {}, title), el("p", { class: "value" }, value, " ", el("small", {}, unit)), ...notes.map((note) => (typeof note === "string" ? el("p", {}, note) : note)));
}

function memoryCard(summary) {
  const full = summary.fullest;
  if (!full) return null;
  const share = full.used / full.capacity;
  const left = full.free >= 0 ? `${kibi(full.free)} free` : `${kibi(-full.free)} too much`;
  return card("card-memory", "Fullest tile", [digits(full.used / 1024), `of ${kibi(full.capacity)}`], meter(share), `${percent(share)} · ${left} · IPU ${full.ipu}`);
}

function rateCard(summary) {
  const rate = summary.seconds > 0 ? summary.flops / summary.seconds : 0;
  const [value, unit] = flopsParts(rate * summary.replicas);
  const peak = summary.chip.peak_flops_per_cycle * summary.clock_hz * summary.ipus;
  return card("card-rate", "Arithmetic", [value, `${unit}/s`], `${percent(peak ? rate / peak : 0)} of the half precision peak`, `${flopsText(summary.flops * summary.replicas)} per call`);
}

function causeBar(cycles, clock) {
  const total = cycles.total || 1;
  const bar = el("div", { class: "stack", role: "img", "aria-label": CAUSES.map((cause) => `${cause} ${percent(cycles[cause] / total)}`).join(", ") });
  const legend = el("ul", { class: "legend" });
  for (const cause of CAUSES) {
    const part = piece(cycles[cause] / total, `--${cause}`);
    const lines = [[capital(cause), percent(cycles[cause] / total)], [null, `${timeText(cycles[cause] / clock)} · ${whole(cycles[cause])} cycles`]];
    part.addEventListener("pointermove", (event) => tip.show(event.clientX, event.clientY, lines));
    part.addEventListener("pointerleave", () => tip.hide());
    bar.append(part);
    legend.append(el("li", {}, swatch(`--${cause}`), `${capital(cause)} ${percent(cycles[cause] / total)}`, el("span", { class: "muted" }, timeText(cycles[cause] / clock))));
  }
  return [bar, legend];
}

// Rows of bars, each cut into causes; as long as its share of the largest.
function causeRows(sums, total, clock) {
  const most = sums[0]?.cycles || 1;
  return el("div", { class: "bars" }, ...sums.map((sum) => {
    const track = el("div", { class: "track" }, ...CAUSES.map((cause) => piece(sum.causes[cause] / most, `--${cause}`)));
    return el("div", { class: "bar" }, el("span", { class: "name", title: sum.name }, sum.name || "(none)"), track,
      el("span", { class: "number" }, `${percent(sum.cycles / total)} `, el("span", {}, timeText(sum.cycles / clock))));
  }));
}

function shortLayer(path) {
  // A numbered block is what people call a layer: up to its number; else the first two names.
  const parts = path.split(".");
  const number = parts.findIndex((part) => /^\d+$/.test(part));
  return parts.slice(0, number >= 0 ? number + 1 : 2).join(".") || "(no layer)";
}

function optionFacts(settings) {
  const text = (value) => (Array.isArray(value) ? (value.length ? value.join(", ") : "none") : value === null ? "as the chip has it" : value === true ? "yes" : value === false ? "no" : String(value));
  return el("dl", { class: "facts" }, ...settings.map((row) => el("div", {}, el("dt", {}, words(row.name)), el("dd", {}, text(row.value)))));
}

function summarySection(report, steps) {
  const { summary } = report;
  const notes = el("ul", { class: "notes", id: "warnings" });
  if (!summary.fits && summary.fullest) {
    notes.append(el("li", { class: "worse" }, `The fullest tile of IPU ${summary.fullest.ipu} would need ${kibi(-summary.fullest.free)} more than it has. The real compiler would refuse this program.`));
  }
  notes.append(...report.warnings.map((text) => el("li", {}, text)));
  const unknown = Object.entries(report.unknown);
  if (unknown.length) {
    notes.append(el("li", {}, `Without a cost of their own, bounded by their bytes: ${unknown.map(([name, count]) => `${name} (${whole(count)}×)`).join(", ")}.`));
  }
  const laid = summary.laid_out_cycles;
  const apart = summary.cycles.total ? Math.abs(laid / summary.cycles.total - 1) : 0;
  const cards = el("div", { class: "cards" },
    card("card-throughput", "Throughput", [digits(summary.throughput), "samples/s"], `over ${plural(summary.replicas, "replica")}`),
    card("card-latency", "Latency", timeParts(summary.latency_seconds), "from a sample's first byte to its result"),
    card("card-call", "One call", timeParts(summary.seconds), `${cyclesText(summary.cycles.total)} at ${(summary.clock_hz / 1e9).toFixed(2)} GHz`, plural(summary.batch, "sample")),
    rateCard(summary), memoryCard(summary));
  const sumAll = groupSteps(steps, () => "all")[0]?.cycles || 1;
  const kinds = groupSteps(steps, (i) => words(steps.text("kind", i))).slice(0, 8);
  const layers = groupSteps(steps, (i) => shortLayer(steps.text("path", i))).slice(0, 12);
  section("summary", "Summary", null, notes.children.length ? notes : null, cards,
    el("div", { class: "columns" }, el("div", { class: "column" },
      el("div", {}, el("h3", {}, "Where the time of a call goes"), ...causeBar(summary.cycles, summary.clock_hz),
        apart > 0.01 ? el("p", { class: "muted small", id: "apart" }, `Steps laid out one by one take ${timeText(laid / summary.clock_hz)}; the estimate of a call is ${timeText(summary.seconds)}, since it also knows what overlaps or waits.`) : null),
      el("div", {}, el("h3", {}, "By kind of operator, all IPUs together"), causeRows(kinds, sumAll, summary.clock_hz))),
      layers.length > 1 ? el("div", { class: "column" }, el("div", {}, el("h3", {}, "Slowest layers, all IPUs together"), causeRows(layers, sumAll, summary.clock_hz))) : null),
    el("details", { id: "options" }, el("summary", {}, "Options"), optionFacts(report.settings)));
}
