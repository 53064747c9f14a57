// The embedded data: unpacked once, then read column by column.

const CAUSES = ["compute", "exchange", "sync", "host", "links"];
// In the order in which they happen within a step, as in the trace.
const CAUSE_ORDER = ["host", "links", "exchange", "sync", "compute"];
const KNOWN_CATEGORIES = ["weights", "state", "stash", "activations", "temporary", "host_buffers", "code", "vertex_state", "exchange_code"];
const CATEGORY_NAMES = { state: "optimiser state", stash: "stashed activations", code: "vertex code", host_buffers: "host buffers" };
const categoryName = (name) => CATEGORY_NAMES[name] ?? words(name);
const categoryColour = (name) => (KNOWN_CATEGORIES.includes(name) ? `--c-${name}` : "--c-other");
// Phases that no micro-batch has: once per update, once at the end of a call.
const ONCE = ["update", "end"];
const phaseColour = (phase) => (["forward", "backward", "update"].includes(phase) ? `--${phase}` : "--other");

async function unpackData() {
  const text = atob(byId("data").textContent);
  const packed = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i += 1) packed[i] = text.charCodeAt(i);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).json();
}

// Steps by number, with what follows from the columns.
class Steps {
  constructor(report) {
    this.columns = report.steps;
    this.texts = report.texts;
    this.clock = report.summary.clock_hz;
    this.count = this.columns.op.length;
    this.once = new Float64Array(this.count);
    this.runs = new Float64Array(this.count);
    for (let i = 0; i < this.count; i += 1) {
      for (const cause of CAUSES) this.once[i] += this.columns[cause][i];
      this.runs[i] = report.runs[this.text("phase", i)];
    }
  }
  text(name, i) { return this.texts[this.columns[name][i]]; }
  number(name, i) { return this.columns[name][i]; }
  // Cycles of all its runs in one call.
  all(i) { return this.once[i] * this.runs[i]; }
  seconds(cycles) { return cycles / this.clock; }
  bytes(i) { return this.columns.live_bytes[i] + this.columns.temporary_bytes[i]; }

  // The lines of a tooltip or of a panel.
  facts(i) {
    const causes = CAUSES.filter((cause) => this.columns[cause][i] > 0)
      .map((cause) => `${cause} ${whole(this.columns[cause][i])}`).join(" · ");
    const rate = this.once[i] > 0 ? this.columns.flops[i] / this.seconds(this.once[i]) : 0;
    return [
      ["Kind", this.text("kind", i)],
      this.text("path", i) ? ["Layer", this.text("path", i)] : null,
      this.text("source", i) ? ["From", this.text("source", i)] : null,
      ["Phase", `${this.text("phase", i)}, stage ${this.number("stage", i)}, IPU ${this.number("ipu", i)}`],
      ["Once", `${timeText(this.seconds(this.once[i]))}, ${whole(this.once[i])} cycles`],
      causes ? ["Cycles", causes] : null,
      ["Runs per call", whole(this.runs[i])],
      rate > 0 ? ["Rate", `${flopsText(rate)}/s`] : null,
      this.number("tiles_used", i) ? ["Tiles", whole(this.number("tiles_used", i))] : null,
      this.text("plan", i) ? ["Plan", this.text("plan", i)] : null,
      ["Fullest tile", this.bytes(i) ? `${kibi(this.number("live_bytes", i))} live, ${kibi(this.number("temporary_bytes", i))} temporary` : "not known"],
    ];
  }
}

// Sums over steps by a name, the largest first.
function groupSteps(steps, nameOf) {
  const found = new Map();
  for (let i = 0; i < steps.count; i += 1) {
    const name = nameOf(i);
    let sum = found.get(name);
    if (!sum) {
      sum = { name, steps: 0, once: 0, cycles: 0, flops: 0, causes: Object.fromEntries(CAUSES.map((cause) => [cause, 0])) };
      found.set(name, sum);
    }
    sum.steps += 1;
    sum.once += steps.once[i];
    sum.cycles += steps.all(i);
    sum.flops += steps.number("flops", i) * steps.runs[i];
    for (const cause of CAUSES) sum.causes[cause] += steps.number(cause, i) * steps.runs[i];
  }
  return [...found.values()].sort((a, b) => b.cycles - a.cycles);
}
