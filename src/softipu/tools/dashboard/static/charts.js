// The totals: one card each, with the value now and a plot of the last minutes. All plots share
// one time axis and one read-out line, which pointer and arrow keys move.

import { el, setText } from "./dom.js";
import * as format from "./format.js";
import { Plot } from "./plot.js";

const scale = (units, base) => (top) => {
  let power = 0;
  while (top >= base ** (power + 1) && power < units.length - 1) power += 1;
  return { unit: units[power], factor: base ** power };
};

const CARDS = [
  {
    id: "busy",
    title: "IPUs in use",
    series: [{ column: "busy", name: "in use" }],
    text: (value) => `${Math.round(value)}`,
    top: (totals) => Math.max(1, totals.ipus),
    scale: () => ({ unit: "IPUs", factor: 1 }),
    now: (totals) => [`${totals.busy}`, `of ${totals.ipus}`],
    note: (totals) =>
      `${format.plural(totals.processes, "process", "processes")} · ` +
      `${format.bytes(totals.memory_bytes)} tile memory`,
  },
  {
    id: "utilisation",
    title: "Mean utilisation",
    series: [{ column: "utilisation", name: "of all IPUs" }],
    text: format.percent,
    top: () => 1,
    scale: () => ({ unit: "%", factor: 0.01 }),
    now: (totals) => [format.percent(totals.utilisation), "of all IPUs"],
    note: (totals) => `${format.percent(totals.held_utilisation)} of those in use`,
  },
  {
    id: "power",
    title: "Board power",
    modelled: true,
    series: [{ column: "power", name: "all boards" }],
    text: format.watts,
    scale: scale(format.WATTS, 1000),
    now: (totals) => [format.watts(totals.power), ""],
    note: (totals) => `sum of ${format.plural(totals.boards, "board")}`,
  },
  {
    id: "io",
    title: "Host I/O",
    series: [
      { column: "host_in", name: "to IPUs" },
      { column: "host_out", name: "from IPUs", dashed: true },
    ],
    text: format.rate,
    least: 1000,
    scale: scale(format.RATES, 1000),
    now: (totals) => [format.rate(totals.host_in + totals.host_out), ""],
    note: (totals) =>
      `to IPUs ${format.rate(totals.host_in)} · from IPUs ${format.rate(totals.host_out)}`,
  },
];

export class Charts {
  constructor(root) {
    this.points = [];
    this.seconds = 600;
    this.spacing = 1;
    this.cursor = null; // seconds before now, or null
    this.cards = CARDS.map((card) => makeCard(card, this));
    root.append(...this.cards.map((card) => card.node));
    new ResizeObserver(() => this.draw()).observe(root);
  }

  add(snapshot) {
    const { time, totals } = snapshot;
    const last = this.points.at(-1);
    if (!totals.known || (last && time <= last.time)) return;
    this.points.push({ time, ...totals });
    const first = this.points.findIndex((one) => one.time >= time - this.seconds);
    if (first > 0) this.points.splice(0, first);
  }

  // The server's memory begins when it starts; what this page saw before that is kept.
  merge({ seconds, spacing, columns, points }) {
    Object.assign(this, { seconds, spacing });
    const theirs = points.map((row) => Object.fromEntries(columns.map((name, i) => [name, row[i]])));
    if (!theirs.length) return;
    const before = this.points.filter((one) => one.time < theirs[0].time);
    const after = this.points.filter((one) => one.time > theirs.at(-1).time);
    this.points = [...before, ...theirs, ...after];
  }

  render(snapshot) {
    this.totals = snapshot.totals;
    this.now = snapshot.time;
    for (const card of this.cards) {
      // Not readable is not zero.
      const [value, unit] = this.totals.known ? card.now(this.totals) : ["–", ""];
      setText(card.value, value);
      setText(card.unit, unit);
      setText(card.note, this.totals.known ? card.describe(this.totals) : "not readable");
    }
    this.draw();
  }

  draw() {
    if (this.totals) for (const card of this.cards) card.plot.draw(this, this.totals);
  }

  point(cursor) {
    this.cursor = cursor === null ? null : Math.min(this.seconds, Math.max(0, cursor));
    this.draw();
  }

  // The point nearest to the read-out line, if any is near.
  atCursor() {
    if (this.cursor === null) return null;
    const wanted = this.now - this.cursor;
    let best = null;
    for (const one of this.points) {
      if (!best || Math.abs(one.time - wanted) < Math.abs(best.time - wanted)) best = one;
    }
    return best && Math.abs(best.time - wanted) <= Math.max(6, 2 * this.spacing) ? best : null;
  }
}

function makeCard(card, charts) {
  const [value, unit, note] = ["value", "unit", "note"].map((name) => el("span", { class: name }));
  const plot = new Plot(card, charts);
  const title = el("h2", {}, card.title);
  if (card.modelled) title.append(" ", el("span", { class: "badge" }, "modelled, not measured"));
  const node = el(
    "article",
    { class: "card", "data-chart": card.id },
    title,
    el("p", { class: "now" }, value, " ", unit),
    el("p", { class: "muted" }, note),
    plot.node,
  );
  return { node, value, unit, note, plot, now: card.now, describe: card.note };
}
