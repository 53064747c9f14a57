// One plot over the last minutes, as SVG: axes with units, one or two lines, a read-out.
// What is plotted, and the place of the read-out line, belong to charts.js.

import { el, setAttribute, setText, svg } from "./dom.js";
import { duration, timeOfDay } from "./format.js";

const HEIGHT = 122;
const MARGIN = { left: 40, right: 10, top: 8, bottom: 24 };

export class Plot {
  constructor(card, charts) {
    this.card = card;
    this.lines = card.series.map((one, index) => ({
      ...one,
      area: svg("path", { class: "area", "data-series": index }),
      line: svg("path", { class: "line", "data-series": index }),
      dot: svg("circle", { class: "dot", r: 3.5, "data-series": index, visibility: "hidden" }),
    }));
    this.axes = svg("g", { class: "axes" });
    this.cursor = svg("line", { class: "cursor", visibility: "hidden" });
    this.svg = svg(
      "svg",
      { height: HEIGHT, "aria-hidden": "true" },
      this.axes,
      ...this.lines.flatMap((one) => [one.area, one.line]),
      this.cursor,
      ...this.lines.map((one) => one.dot),
    );
    this.readout = el("div", { class: "readout", hidden: "" });
    this.node = el(
      "div",
      { class: "plot", tabindex: 0, role: "img", "aria-label": `${card.title}, plot` },
      this.svg,
      this.readout,
    );
    this.listen(charts);
  }

  listen(charts) {
    this.node.addEventListener("pointermove", (event) => {
      const box = this.node.getBoundingClientRect();
      const width = box.width - MARGIN.left - MARGIN.right;
      charts.point(((box.right - MARGIN.right - event.clientX) / width) * charts.seconds);
    });
    this.node.addEventListener("pointerleave", () => charts.point(null));
    this.node.addEventListener("blur", () => charts.point(null));
    this.node.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: 1, ArrowRight: -1 }[event.key];
      if (!step) return;
      event.preventDefault();
      charts.point((charts.cursor ?? 0) + (step * charts.seconds) / 60);
    });
  }

  draw(charts, totals) {
    const width = this.node.clientWidth;
    if (width < 80) return;
    setAttribute(this.svg, "width", width);
    setAttribute(this.svg, "viewBox", `0 0 ${width} ${HEIGHT}`);
    const top = this.top(charts, totals);
    const from = charts.now - charts.seconds;
    const inner = { width: width - MARGIN.left - MARGIN.right, height: HEIGHT - MARGIN.top - MARGIN.bottom };
    const x = (time) => MARGIN.left + ((time - from) / charts.seconds) * inner.width;
    const y = (value) => MARGIN.top + (1 - Math.min(1, value / top)) * inner.height;
    this.drawAxes(charts.seconds, top, width, y);
    // While nobody watched, the server looked every few seconds only: that is no gap.
    const gap = Math.max(12, 3 * charts.spacing);
    for (const one of this.lines) {
      const runs = split(charts.points, from, gap);
      setAttribute(one.line, "d", runs.map((run) => linePath(run, one.column, x, y)).join(""));
      setAttribute(one.area, "d", runs.map((run) => areaPath(run, one.column, x, y)).join(""));
      setAttribute(one.line, "stroke-dasharray", one.dashed ? "5 3" : null);
    }
    const [value, unit] = this.card.now(totals);
    const minutes = duration(charts.seconds);
    setAttribute(this.node, "aria-label", `${this.card.title}: now ${value} ${unit}. Plot of the last ${minutes}.`);
    this.drawReadout(charts, x, y, width);
  }

  top(charts, totals) {
    if (this.card.top) return this.card.top(totals);
    let most = this.card.least ?? 1;
    for (const point of charts.points) {
      for (const one of this.lines) most = Math.max(most, point[one.column]);
    }
    const wanted = most * 1.08;
    const power = 10 ** Math.floor(Math.log10(wanted));
    return [1, 1.5, 2, 3, 4, 5, 6, 8, 10].find((step) => step * power >= wanted) * power;
  }

  drawAxes(seconds, top, width, y) {
    const looks = `${seconds}|${top}|${width}`;
    if (looks === this.looks) return;
    this.looks = looks;
    const { unit, factor } = this.card.scale(top);
    const nodes = [];
    for (const share of [0, 0.5, 1]) {
      const at = y(share * top);
      const number = (share * top) / factor;
      nodes.push(
        svg("line", { x1: MARGIN.left, x2: width - MARGIN.right, y1: at, y2: at }),
        svg("text", { x: MARGIN.left - 6, y: at + 3.5, "text-anchor": "end" }, `${Number(number.toPrecision(3))}`),
      );
    }
    const base = HEIGHT - 5;
    const middle = (MARGIN.left + width - MARGIN.right) / 2;
    nodes.push(
      svg("text", { x: MARGIN.left - 6, y: base, "text-anchor": "end", class: "axis-unit" }, unit),
      svg("text", { x: MARGIN.left, y: base }, `−${span(seconds)}`),
      svg("text", { x: middle, y: base, "text-anchor": "middle" }, `−${span(seconds / 2)}`),
      svg("text", { x: width - MARGIN.right, y: base, "text-anchor": "end" }, "now"),
    );
    this.axes.replaceChildren(...nodes);
  }

  drawReadout(charts, x, y, width) {
    const point = charts.atCursor();
    const shown = point ? "visible" : "hidden";
    setAttribute(this.cursor, "visibility", shown);
    for (const one of this.lines) setAttribute(one.dot, "visibility", shown);
    this.readout.hidden = !point;
    if (!point) return;
    const at = x(point.time);
    for (const [name, value] of Object.entries({ x1: at, x2: at, y1: MARGIN.top, y2: HEIGHT - MARGIN.bottom })) {
      setAttribute(this.cursor, name, value);
    }
    for (const one of this.lines) {
      setAttribute(one.dot, "cx", at);
      setAttribute(one.dot, "cy", y(point[one.column]));
    }
    const values = this.lines.map((one) => `${this.card.text(point[one.column])} ${one.name}`);
    setText(this.readout, [timeOfDay(point.time), ...values].join("\n"));
    const half = this.readout.offsetWidth / 2;
    this.readout.style.left = `${Math.max(half, Math.min(width - half, at))}px`;
  }
}

function span(seconds) {
  if (seconds >= 7200) return `${Number((seconds / 3600).toFixed(1))} h`;
  return seconds >= 60 ? `${Number((seconds / 60).toFixed(1))} min` : `${Math.round(seconds)} s`;
}

function split(points, from, gap) {
  const runs = [];
  let last = -Infinity;
  for (const point of points) {
    if (point.time < from) continue;
    if (point.time - last > gap) runs.push([]);
    runs.at(-1).push(point);
    last = point.time;
  }
  return runs;
}

function linePath(run, column, x, y) {
  const steps = run.map((one, i) => `${i ? "L" : "M"}${x(one.time).toFixed(1)} ${y(one[column]).toFixed(1)}`);
  return run.length === 1 ? `${steps[0]}h0.01` : steps.join("");
}

function areaPath(run, column, x, y) {
  const [first, last] = [run[0], run.at(-1)].map((one) => x(one.time).toFixed(1));
  const floor = y(0).toFixed(1);
  return `${linePath(run, column, x, y)}L${last} ${floor}L${first} ${floor}Z`;
}
