// The panel about one IPU: the pinned one, else the one pointed at, else a hint.

import { el, setAttribute, setText, setVariable } from "./dom.js";
import * as format from "./format.js";

const MODELLED = "modelled, not measured";

// Rows: title, text from (ipu, process, partition); null leaves a row out.
const ROWS = [
  ["Holder", (ipu, process) => {
    if (ipu.state === "unknown") return "not readable";
    if (ipu.state === "free") return "none: free";
    return process ? process.command : "unknown: no readable record";
  }],
  ["PID, user", (_, process) =>
    process && `${process.pid}${process.local ? "" : ` on ${process.host}`}, ${process.user}`],
  ["Attached", (ipu, process) =>
    process && `${format.moment(process.since)} (${format.duration(process.seconds_held)})`],
  ["Device", (_, process) =>
    process && `${process.device}, ${format.plural(process.ipus.length, "IPU")}: ${format.ranges(process.ipus)}`],
  ["Executable", (_, process) => process?.executable || null],
  ["Mean so far", (ipu, process) => process && `${format.percent(ipu.session_utilisation)} utilised`],
  ["Host to IPU", (ipu, process) => process && format.rate(ipu.host_in)],
  ["IPU to host", (ipu, process) => process && format.rate(ipu.host_out)],
  ["Clock", (ipu) => format.clock(ipu.clock_hz)],
  ["IPU-Machine", (ipu) => `${ipu.host}, IPU# ${ipu.number}`],
  ["Serial", (ipu) => ipu.serial],
];
const SENSORS = [
  ["IPU power", (ipu) => format.watts(ipu.ipu_power)],
  ["Board power", (ipu) => format.watts(ipu.board_power)],
  ["Die temp.", (ipu) => format.celsius(ipu.die_temperature)],
  ["Board temp.", (ipu) => format.celsius(ipu.board_temperature)],
];

export class Details {
  constructor(root, { onClose }) {
    this.root = root;
    this.title = el("h2");
    this.tag = el("span", { class: "swatch strip" });
    this.pin = el("button", { type: "button", class: "close", title: "Unpin (Escape)" }, "Unpin");
    this.pin.addEventListener("click", onClose);
    this.load = meter("Utilisation", "load");
    this.memory = meter("Tile memory", "memory");
    this.rows = ROWS.map(([title]) => row(title));
    this.sensors = SENSORS.map(([title]) => row(title));
    this.sensorBlock = el(
      "div",
      { class: "modelled" },
      el("h3", {}, "Power and temperature ", el("span", { class: "badge" }, MODELLED)),
      el("dl", { class: "sensors" }, ...this.sensors.map((one) => one.node)),
    );
    this.body = el(
      "div",
      { class: "details-body", hidden: "" },
      el("div", { class: "details-head" }, this.title, this.tag, this.pin),
      this.load.node,
      this.memory.node,
      el("dl", {}, ...this.rows.map((one) => one.node)),
      this.sensorBlock,
    );
    this.hint = el(
      "div",
      { class: "hint" },
      el("h2", {}, "One IPU"),
      el("p", {}, "Point at an IPU to see who holds it and what it does. Click to pin it; Escape unpins."),
      el("p", {}, "With the keyboard: Tab into the grid, then the arrow keys."),
    );
    root.append(this.hint, this.body);
  }

  render(snapshot, partition, { pinned, pointed }) {
    const everywhere = [partition, ...snapshot.partitions].filter(Boolean).flatMap((one) => one.ipus);
    const by = (key) => key && everywhere.find((one) => one.key === key);
    const ipu = by(pinned) ?? by(pointed);
    this.hint.hidden = Boolean(ipu);
    this.body.hidden = !ipu;
    setAttribute(this.root, "data-pinned", Boolean(by(pinned)));
    if (!ipu) return;
    const process = snapshot.processes.find((one) => one.key === ipu.holder?.process);
    setText(this.title, `IPU ${ipu.id}`);
    this.tag.hidden = !process;
    if (process) {
      setText(this.tag, format.letters(process.slot));
      setAttribute(this.tag, "data-slot", process.slot % format.COLOURS);
    }
    this.pin.hidden = !by(pinned);
    const known = ipu.state !== "unknown";
    this.load.set(ipu.utilisation, known ? format.percent(ipu.utilisation) : "not readable");
    this.memory.set(
      ipu.memory_bytes / ipu.memory_total,
      `${format.bytes(ipu.memory_bytes)} of ${format.bytes(ipu.memory_total)}`,
    );
    ROWS.forEach(([, text], index) => this.rows[index].set(text(ipu, process, partition)));
    this.sensorBlock.hidden = !known;
    SENSORS.forEach(([, text], index) => this.sensors[index].set(text(ipu)));
  }
}

function row(title) {
  const value = el("dd");
  const node = el("div", {}, el("dt", {}, title), value);
  return {
    node,
    set(text) {
      node.hidden = !text;
      setText(value, text ?? "");
    },
  };
}

function meter(title, kind) {
  const value = el("span", { class: "meter-value" });
  const bar = el("i");
  const node = el(
    "div",
    { class: "meter" },
    el("span", {}, title),
    value,
    el("span", { class: `bar ${kind}` }, bar),
  );
  return {
    node,
    set(share, text) {
      setText(value, text);
      setVariable(bar, "--share", Math.min(1, share).toFixed(3));
    },
  };
}
