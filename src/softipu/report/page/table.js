// A table of any length: only the rows in sight exist. Sorting, choosing rows, keys.

const ROW = 30;
// Rows that exist above and below those in sight: most frames of a scroll then change nothing.
const SPARE = 24;

// columns: [{ name, title, width, number, cell(row) -> node or text, value(row) -> to sort by }]
class BigTable {
  constructor({ id, label, columns, sort, descending = true, choose }) {
    this.columns = columns;
    this.sortBy = sort;
    this.descending = descending;
    this.choose = choose;
    this.rows = [];
    this.made = new Map();
    this.active = -1;
    this.headRow = el("tr");
    this.body = el("tbody");
    this.table = el("table", { "aria-label": label }, el("colgroup"), el("thead", {}, this.headRow), this.body);
    this.node = el("div", { class: "grid", id, tabindex: "0" }, this.table);
    this.node.addEventListener("scroll", () => this.paintSoon(), { passive: true });
    this.node.addEventListener("keydown", (event) => this.key(event));
    this.body.addEventListener("click", (event) => {
      const number = event.target.closest("tr")?.dataset.number;
      if (number !== undefined) this.pick(Number(number));
    });
    new ResizeObserver(() => this.paintSoon()).observe(this.node);
    this.heads();
  }

  heads() {
    this.table.querySelector("colgroup").replaceChildren(...this.columns.map((column) => {
      const node = el("col");
      node.style.width = `${column.width}px`;
      return node;
    }));
    this.table.style.width = `max(100%, ${this.columns.reduce((sum, column) => sum + column.width, 0)}px)`;
    this.headRow.replaceChildren(...this.columns.map((column) => {
      const sorted = column.name === this.sortBy ? (this.descending ? "descending" : "ascending") : null;
      return el("th", { scope: "col", class: column.number ? "number" : null, "aria-sort": sorted, "data-column": column.name },
        el("button", { type: "button", title: column.explain ?? column.title, onclick: () => this.sort(column.name) }, column.title));
    }));
  }

  setColumns(columns, sort) {
    this.columns = columns;
    this.sortBy = sort;
    this.descending = true;
    this.heads();
  }

  setRows(rows) {
    this.rows = rows;
    this.active = -1;
    this.order();
    this.node.scrollTop = 0;
    this.paint();
  }

  sort(name) {
    const column = this.columns.find((one) => one.name === name);
    this.descending = name === this.sortBy ? !this.descending : Boolean(column.number);
    this.sortBy = name;
    const focus = document.activeElement?.closest("th")?.dataset.column;
    this.heads();
    if (focus) this.headRow.querySelector(`[data-column="${focus}"] button`).focus();
    this.order();
    this.node.scrollTop = 0;
    this.active = -1;
    this.paint();
  }

  order() {
    const column = this.columns.find((one) => one.name === this.sortBy);
    if (!column) return;
    const sign = this.descending ? -1 : 1;
    const keyed = this.rows.map((row) => [column.value(row), row]);
    keyed.sort(column.number ? (a, b) => sign * (a[0] - b[0]) : (a, b) => sign * (a[0] < b[0] ? -1 : a[0] > b[0] ? 1 : 0));
    this.rows = keyed.map(([, row]) => row);
  }

  paintSoon() {
    if (this.asked) return;
    this.asked = true;
    requestAnimationFrame(() => { this.asked = false; this.paint(false); });
  }

  // Rows that stay in sight stay as they are: scrolling makes only the new ones.
  paint(anew = true) {
    if (anew) this.made.clear();
    const height = this.node.clientHeight || 600;
    const [top, bottom] = [Math.floor(this.node.scrollTop / ROW), Math.ceil((this.node.scrollTop + height) / ROW)];
    const enough = (spare) => [Math.max(0, top - spare), Math.min(this.rows.length, bottom + spare)];
    if (!anew && this.shown && enough(4)[0] >= this.shown[0] && enough(4)[1] <= this.shown[1]) return;
    const [first, last] = this.shown = enough(SPARE);
    this.table.setAttribute("aria-rowcount", this.rows.length + 1);
    const nodes = [this.gap(first)];
    for (const number of this.made.keys()) if (number < first || number >= last) this.made.delete(number);
    for (let number = first; number < last; number += 1) {
      if (!this.made.has(number)) this.made.set(number, this.row(number));
      nodes.push(this.made.get(number));
    }
    nodes.push(this.gap(this.rows.length - last));
    if (!this.rows.length) nodes.push(el("tr", { class: "gap" }, el("td", { colspan: this.columns.length }, el("p", { class: "empty" }, "Nothing matches."))));
    this.body.replaceChildren(...nodes);
  }

  gap(rows) {
    const cell = el("td", { colspan: this.columns.length });
    cell.style.height = `${rows * ROW}px`;
    return el("tr", { class: "gap", "aria-hidden": "true", hidden: rows === 0 }, cell);
  }

  row(number) {
    const row = this.rows[number];
    return el("tr", { "data-number": number, "aria-rowindex": number + 2, "aria-selected": number === this.active ? "true" : null }, ...this.columns.map((column) => {
      const content = column.cell(row);
      return el("td", { class: column.number ? "number" : null, title: typeof content === "string" && !column.number ? content : null }, content);
    }));
  }

  pick(number) {
    this.active = Math.min(Math.max(0, number), this.rows.length - 1);
    const top = this.active * ROW;
    const head = this.headRow.offsetHeight;
    if (top < this.node.scrollTop) this.node.scrollTop = top;
    else if (top + ROW + head > this.node.scrollTop + this.node.clientHeight) this.node.scrollTop = top + ROW + head - this.node.clientHeight;
    this.paint();
    if (this.rows.length) this.choose?.(this.rows[this.active]);
  }

  key(event) {
    if (event.target !== this.node) return;
    const page = Math.max(1, Math.floor(this.node.clientHeight / ROW) - 2);
    const to = { ArrowDown: this.active + 1, ArrowUp: this.active - 1, PageDown: this.active + page, PageUp: this.active - page, Home: 0, End: this.rows.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    this.pick(to);
  }
}

// Words that must all be found; `kind:matmul` looks in one column only.
function searcher(text) {
  const tokens = text.toLowerCase().split(/\s+/).filter(Boolean).map((token) => {
    const [, field, value] = token.match(/^(\w+):(.+)$/) ?? [null, null, token];
    return { field, value };
  });
  return (fields) => tokens.every(({ field, value }) => (field && field in fields ? fields[field].toLowerCase().includes(value) : Object.values(fields).some((one) => one.toLowerCase().includes(field ? `${field}:${value}` : value))));
}

function chooser(label, values, change) {
  return el("select", { "aria-label": label, onchange: (event) => change(event.target.value) }, ...values.map(([value, text]) => el("option", { value }, text)));
}
