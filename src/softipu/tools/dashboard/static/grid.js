// Every IPU of a partition, grouped by IPU-Machine. Cells are made once per partition; after that
// an update touches only the cells whose looks changed.

import { el, setAttribute, setText, setVariable } from "./dom.js";
import { COLOURS, bytes, celsius, letters, percent, watts } from "./format.js";

// How much fits into a cell depends on how many there are.
function density(count) {
  if (count <= 4) return "huge";
  if (count <= 16) return "roomy";
  return count <= 64 ? "medium" : "dense";
}

export class Grid {
  constructor(root, { onPoint, onPin }) {
    this.root = root;
    this.layout = "";
    this.cells = new Map();
    const keyOf = (event) => event.target.closest?.(".cell")?.dataset.key ?? null;
    root.addEventListener("pointerover", (event) => onPoint(keyOf(event)));
    root.addEventListener("pointerleave", () => onPoint(null));
    root.addEventListener("focusin", (event) => onPoint(keyOf(event)));
    root.addEventListener("focusout", () => onPoint(null));
    root.addEventListener("click", (event) => keyOf(event) && onPin(keyOf(event)));
    root.addEventListener("keydown", (event) => this.key(event));
  }

  render(partition, snapshot, state) {
    const ipus = partition?.ipus ?? [];
    const layout = JSON.stringify([partition?.name, ...ipus.map((one) => one.key)]);
    if (layout !== this.layout) this.build(partition, ipus, layout);
    const slots = new Map(snapshot.processes.map((one) => [one.key, one.slot]));
    setAttribute(this.root, "data-choosing", state.process !== null);
    for (const ipu of ipus) this.update(ipu, slots, state);
  }

  build(partition, ipus, layout) {
    this.layout = layout;
    this.cells.clear();
    const machines = new Map();
    for (const ipu of ipus) {
      const cell = makeCell(ipu);
      this.cells.set(ipu.key, cell);
      if (!machines.has(ipu.host)) machines.set(ipu.host, []);
      machines.get(ipu.host).push(cell.node);
    }
    const kind = partition?.interconnect === "pcie" ? "Card" : "IPU-Machine";
    setAttribute(this.root, "data-density", density(ipus.length));
    const widest = Math.max(1, ...[...machines.values()].map((cells) => cells.length));
    setVariable(this.root, "--columns", String(widest));
    this.root.replaceChildren(
      ...[...machines].map(([host, cells]) =>
        el(
          "div",
          { class: "machine", role: "group", "aria-label": `${kind} ${host}` },
          el("h3", { title: `${kind} ${host}, ${partition.board_type}` }, host),
          el("div", { class: "cells" }, ...cells),
        ),
      ),
    );
    const first = this.root.querySelector(".cell");
    if (first) first.tabIndex = 0;
  }

  update(ipu, slots, state) {
    const cell = this.cells.get(ipu.key);
    const process = ipu.holder?.process ?? null;
    const slot = process === null ? null : (slots.get(process) ?? null);
    const looks = [
      ipu.state, slot, percent(ipu.utilisation), ipu.memory_bytes, ipu.board_power,
      ipu.die_temperature, ipu.holder?.pid, ipu.holder?.command,
      state.process !== null && process === state.process, state.pinned === ipu.key,
    ].join("|");
    if (looks === cell.looks) return;
    cell.looks = looks;
    const tag = ipu.state === "unknown" ? "?" : slot === null ? "" : letters(slot);
    const held = ipu.state === "held";
    setAttribute(cell.node, "data-state", ipu.state);
    setAttribute(cell.node, "data-slot", slot === null ? null : slot % COLOURS);
    setAttribute(cell.node, "data-chosen", state.process !== null && process === state.process);
    setAttribute(cell.node, "aria-pressed", String(state.pinned === ipu.key));
    setAttribute(cell.node, "aria-label", label(ipu, tag));
    setText(cell.tag, held && !tag ? "?" : tag);
    setText(cell.share, held ? percent(ipu.utilisation) : ipu.state);
    setText(cell.who, holderName(ipu));
    setText(cell.memory, held ? bytes(ipu.memory_bytes) : "");
    const known = ipu.state !== "unknown";
    setText(cell.sensors, known ? `${celsius(ipu.die_temperature)} · ${watts(ipu.ipu_power)} (modelled)` : "");
    // Each on the very element that uses it: inherited, they would restyle every part of the cell.
    setVariable(cell.node, "--load", ipu.utilisation.toFixed(2));
    setVariable(cell.load, "--share", ipu.utilisation.toFixed(2));
    setVariable(cell.fill, "--share", Math.min(1, ipu.memory_bytes / ipu.memory_total).toFixed(2));
  }

  // One stop for the tab key; arrows walk from cell to cell as they lie on the screen.
  key(event) {
    const here = event.target.closest(".cell");
    if (!here || event.ctrlKey || event.metaKey || event.altKey) return;
    const cells = [...this.root.querySelectorAll(".cell")];
    const at = cells.indexOf(here);
    const vertical = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    const to =
      vertical === undefined
        ? { ArrowLeft: cells[at - 1], ArrowRight: cells[at + 1], Home: cells[0], End: cells.at(-1) }[event.key]
        : nearest(here, cells, vertical);
    if (!to) return;
    event.preventDefault();
    here.tabIndex = -1;
    to.tabIndex = 0;
    to.focus();
  }
}

function makeCell(ipu) {
  const part = (name) => el("span", { class: name });
  const [tag, share, who, memory, sensors] =
    ["tag", "share", "who", "memory-text", "sensors"].map(part);
  const [load, fill] = [el("i"), el("i")];
  const bars = [
    el("span", { class: "bar load" }, load),
    el("span", { class: "bar memory" }, fill),
  ];
  const node = el(
    "button",
    { type: "button", class: "cell", "data-key": ipu.key, tabindex: -1 },
    el("span", { class: "head" }, el("span", { class: "id" }, String(ipu.id)), tag),
    share, who, memory, sensors, ...bars,
  );
  return { node, tag, share, who, memory, sensors, load, fill, looks: "" };
}

function holderName(ipu) {
  if (ipu.state !== "held") return "";
  return ipu.holder ? `${ipu.holder.command} ${ipu.holder.pid}` : "unknown holder";
}

function label(ipu, tag) {
  if (ipu.state !== "held") return `IPU ${ipu.id}, ${ipu.state}`;
  const who = ipu.holder
    ? `process ${tag}, ${ipu.holder.command}, pid ${ipu.holder.pid}`
    : "an unknown process";
  const memory = percent(ipu.memory_bytes / ipu.memory_total);
  return `IPU ${ipu.id}, held by ${who}, utilisation ${percent(ipu.utilisation)}, memory ${memory}`;
}

function nearest(here, cells, direction) {
  const from = here.getBoundingClientRect();
  let best = null;
  let score = Infinity;
  for (const cell of cells) {
    const box = cell.getBoundingClientRect();
    const down = (box.top - from.top) * direction;
    if (down < 4) continue;
    const distance = down * 4 + Math.abs(box.left - from.left);
    if (distance < score) [best, score] = [cell, distance];
  }
  return best;
}
