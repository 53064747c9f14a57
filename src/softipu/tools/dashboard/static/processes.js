// The table of processes: one row per lease, sortable by every column, a row highlights its IPUs.

import { arrange, el, setAttribute, setText, setVariable } from "./dom.js";
import * as format from "./format.js";

// Columns: key, title, text, value to sort by, extra class. Numbers sort downwards first.
const COLUMNS = [
  ["tag", "", (one) => format.letters(one.slot), (one) => one.slot, ""],
  ["pid", "PID", (one) => (one.local ? `${one.pid}` : `${one.pid} on ${one.host}`), (one) => one.pid, "number"],
  ["command", "Command", (one) => one.command, (one) => one.command, "long"],
  ["user", "User", (one) => one.user, (one) => one.user, ""],
  ["partition", "Partition", (one) => one.partition, (one) => one.partition, ""],
  ["device", "Device", (one) => `${one.device}`, (one) => one.device, "number"],
  ["ipus", "IPUs", (one) => format.ranges(one.ipus), (one) => Math.min(...one.ipus), ""],
  ["held", "Held", (one) => format.duration(one.seconds_held), (one) => one.seconds_held, "number"],
  ["load", "Utilisation", (one) => format.percent(one.utilisation), (one) => one.utilisation, "number"],
  ["memory", "Memory", (one) => format.bytes(one.memory_bytes), (one) => one.memory_bytes, "number"],
  ["in", "To IPUs", (one) => format.rate(one.host_in), (one) => one.host_in, "number"],
  ["out", "From IPUs", (one) => format.rate(one.host_out), (one) => one.host_out, "number"],
  ["executable", "Executable", (one) => one.executable || "–", (one) => one.executable, "long"],
];

const NONE = "No attached processes. IPUs light up here as soon as a program attaches to them.";
const UNREADABLE = "Who holds the IPUs cannot be read.";

export class Processes {
  constructor(root, { onChoose }) {
    this.onChoose = onChoose;
    this.body = root.querySelector("tbody");
    this.empty = root.querySelector("#no-processes");
    this.table = root.querySelector("table");
    this.rows = new Map();
    this.sort = { key: "ipus", descending: false };
    this.heads = new Map();
    for (const [key, title, , , kind] of COLUMNS) {
      const button = el("button", { type: "button" }, title || "Mark");
      if (!title) button.classList.add("hidden-title");
      button.addEventListener("click", () => this.sortBy(key, kind === "number"));
      const head = el("th", { scope: "col", class: `${key} ${kind}` }, button);
      this.heads.set(key, head);
      root.querySelector("thead tr").append(head);
    }
  }

  sortBy(key, numeric) {
    const again = this.sort.key === key;
    this.sort = { key, descending: again ? !this.sort.descending : numeric };
    if (this.state) this.render(this.processes, this.state);
  }

  render(processes, state) {
    Object.assign(this, { processes, state });
    this.table.hidden = processes.length === 0;
    this.empty.hidden = processes.length > 0;
    setText(this.empty, state.snapshot.totals.known ? NONE : UNREADABLE);
    for (const [key, head] of this.heads) {
      const direction = this.sort.descending ? "descending" : "ascending";
      setAttribute(head, "aria-sort", key === this.sort.key ? direction : null);
    }
    const nodes = this.sorted(processes).map((one) => this.row(one, state));
    arrange(this.body, nodes);
    const keys = new Set(processes.map((one) => one.key));
    for (const key of [...this.rows.keys()]) if (!keys.has(key)) this.rows.delete(key);
  }

  sorted(processes) {
    const value = COLUMNS.find(([key]) => key === this.sort.key)[3];
    const sign = this.sort.descending ? -1 : 1;
    const order = (a, b) =>
      typeof a === "string" ? a.localeCompare(b, undefined, { numeric: true }) : a - b;
    return [...processes].sort(
      (a, b) => sign * order(value(a), value(b)) || a.slot - b.slot,
    );
  }

  row(process, state) {
    const row = this.rows.get(process.key) ?? this.make(process);
    row.process = process;
    COLUMNS.forEach(([key, , text], index) => {
      if (key !== "tag") setText(row.texts[index], text(process));
    });
    const tag = format.letters(process.slot);
    setText(row.tag, tag);
    setAttribute(row.tag, "data-slot", process.slot % format.COLOURS);
    setAttribute(row.tag, "aria-label", `Show the IPUs of process ${tag}`);
    const chosen = state.process === process.key;
    setAttribute(row.tag, "aria-pressed", String(chosen));
    setAttribute(row.node, "data-chosen", chosen);
    setVariable(row.bar, "--share", process.utilisation.toFixed(2));
    return row.node;
  }

  make(process) {
    const row = { process, texts: [] };
    row.tag = el("button", { type: "button", class: "swatch strip" });
    row.bar = el("i");
    const cells = COLUMNS.map(([key, title, , , kind]) => {
      const text = el("span", { class: "text" });
      row.texts.push(text);
      const parts = key === "tag" ? [row.tag] : [text];
      if (key === "load") parts.push(el("span", { class: "bar load" }, row.bar));
      return el("td", { class: `${key} ${kind}`, "data-title": title }, ...parts);
    });
    row.node = el("tr", {}, ...cells);
    row.node.addEventListener("click", () => this.onChoose(row.process));
    this.rows.set(process.key, row);
    return row;
  }
}
