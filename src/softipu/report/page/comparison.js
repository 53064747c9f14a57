// Two reports side by side: figures, causes, memory, options, and every step with its difference.

const UNITS = { "samples/s": (value) => `${digits(value)} samples/s`, samples: (value) => plural(value, "sample"), s: timeText, B: kibi, FLOP: flopsText, cycles: cyclesText, "": whole };

function changed(row) {
  if (row.first === row.second) return el("span", { class: "muted" }, "same");
  const text = row.ratio === null ? "new" : signed(row.ratio - 1, percent);
  const word = row.better === null ? "" : row.better ? " better" : " worse";
  return el("span", { class: row.better === null ? "" : row.better ? "good" : "bad" }, `${text}${word}`);
}

function figureTable(id, title, rows, names) {
  return el("table", { class: "mini", id },
    el("thead", {}, el("tr", {}, el("th", {}, title), ...names.map((name) => el("th", {}, name)), el("th", {}, "Difference"), el("th", {}, "Change"))),
    el("tbody", {}, ...rows.map((row) => {
      const text = UNITS[row.unit] ?? whole;
      return el("tr", {}, el("td", {}, row.unit === "B" && row.name !== "total" ? [swatch(categoryColour(row.name)), categoryName(row.name)] : capital(row.name)), el("td", {}, text(row.first)), el("td", {}, text(row.second)), el("td", {}, signed(row.difference, text)), el("td", {}, changed(row)));
    })));
}

function pairRows(data) {
  const [one, two] = data.reports.map((report) => new Steps(report));
  return data.pairs.first.map((first, number) => {
    const second = data.pairs.second[number];
    const [steps, i] = first >= 0 ? [one, first] : [two, second];
    const a = first >= 0 ? one.all(first) / one.clock : 0;
    const b = second >= 0 ? two.all(second) / two.clock : 0;
    return {
      op: steps.text("op", i), kind: steps.text("kind", i), path: steps.text("path", i), phase: steps.text("phase", i), ipu: steps.number("ipu", i),
      first, second, a, b, difference: b - a, one, two,
      memory: (second >= 0 ? two.bytes(second) : 0) - (first >= 0 ? one.bytes(first) : 0),
    };
  });
}

function pairColumns(names) {
  const text = (name, title, width) => ({ name, title, width, value: (row) => row[name], cell: (row) => row[name] });
  const number = (name, title, width, cell, value = (row) => row[name], explain = undefined) => ({ name, title, width, number: true, cell, value, explain });
  return [
    text("op", "Step", 270), text("kind", "Kind", 110), text("path", "Layer", 180), text("phase", "Phase", 88),
    number("a", names[0], 120, (row) => (row.first >= 0 ? timeText(row.a) : "–"), undefined, `Time per call in ${names[0]}`),
    number("b", names[1], 120, (row) => (row.second >= 0 ? timeText(row.b) : "–"), undefined, `Time per call in ${names[1]}`),
    number("difference", "Difference", 120, (row) => signed(row.difference, timeText)),
    number("size", "Size of it", 100, (row) => timeText(Math.abs(row.difference)), (row) => Math.abs(row.difference), "The difference without its sign"),
    number("change", "Change", 90, (row) => (row.a && row.b ? signed(row.b / row.a - 1, percent) : row.a ? "gone" : "new"), (row) => (row.a ? row.b / row.a : Infinity)),
    number("memory", "Memory", 110, (row) => signed(row.memory, kibi), undefined, "Difference of the bytes on the fullest tile"),
  ];
}

function stepsComparison(data, names) {
  const rows = pairRows(data);
  const panel = el("div", { class: "chosen", id: "chosen-row", "aria-live": "polite" }, el("p", { class: "muted" }, "Choose a row to see both sides."));
  const side = (name, steps, i) => el("div", {}, el("h3", {}, name), i >= 0 ? definition(steps.facts(i)) : el("p", { class: "muted" }, "Not there."));
  const table = new BigTable({
    id: "operators-grid", label: "Steps of both programs", columns: pairColumns(names), sort: "size",
    choose: (row) => panel.replaceChildren(el("h3", {}, row.op), side(names[0], row.one, row.first), side(names[1], row.two, row.second)),
  });
  const state = { text: "", which: "" };
  const count = el("span", { class: "count", id: "operators-count", role: "status" });
  const kinds = { "": () => true, changed: (row) => row.a !== row.b || row.memory !== 0, slower: (row) => row.b > row.a, faster: (row) => row.b < row.a, one: (row) => row.first < 0 || row.second < 0 };
  const update = () => {
    const match = searcher(state.text);
    const found = rows.filter((row) => kinds[state.which](row) && match({ op: row.op, kind: row.kind, layer: row.path, phase: row.phase }));
    count.textContent = `${whole(found.length)} of ${plural(rows.length, "step")}`;
    table.setRows(found);
  };
  const search = el("input", { type: "search", class: "search", id: "operators-search", placeholder: "Search step, kind, layer…", "aria-label": "Search steps", oninput: (event) => { state.text = event.target.value; update(); } });
  const { steps } = data.compare;
  section("operators", "Step by step", `${plural(steps.matched, "step")} in both, ${whole(steps.only_first)} only in ${names[0]}, ${whole(steps.only_second)} only in ${names[1]}. Times are of all runs in one call.`,
    el("div", { class: "toolbar" }, search, chooser("Which steps", [["", "All steps"], ["changed", "What changed"], ["slower", "Slower"], ["faster", "Faster"], ["one", "Only in one"]], (value) => { state.which = value; update(); }), count),
    table.node, panel);
  update();
}

async function showComparison() {
  const data = await unpackData();
  const { names, compare } = data;
  byId("top").append(
    el("div", { class: "title" }, el("h1", {}, `${names[0]} and ${names[1]}`), el("p", {}, `A change is from ${names[0]} to ${names[1]}.`)),
    ...[compare.first, compare.second].map((one, k) => el("p", { class: `verdict ${one.fits ? "good" : "bad"}` }, `${names[k]}: ${one.fits ? "fits" : "does not fit"}`)),
    themeButton());
  byId("made").textContent = `softipu ${data.softipu}, report version ${data.version}`;
  const cause = (one, k) => el("div", {}, el("h3", {}, names[k]), ...causeBarOf(one));
  section("summary", "Summary", null, el("div", { class: "columns" },
    figureTable("figures", "Figure", compare.figures, names), figureTable("causes", "Cycles of a call", compare.cycles, names),
    cause(compare.first, 0), cause(compare.second, 1)));
  section("memory", "Memory", "The fullest tile of each IPU at its peak.", el("div", { class: "columns" }, ...compare.memory.map((one) => figureTable(`memory-${one.ipu}`, `IPU ${one.ipu}`, [...one.categories, one.total], names))));
  section("options", "Options", compare.options.length ? "What was set differently." : "Both have the same options.",
    compare.options.length ? el("table", { class: "mini", id: "differences" }, el("thead", {}, el("tr", {}, el("th", {}, "Option"), ...names.map((name) => el("th", {}, name)))),
      el("tbody", {}, ...compare.options.map((row) => el("tr", {}, el("td", {}, words(row.name)), el("td", {}, String(row.first)), el("td", {}, String(row.second)))))) : null);
  stepsComparison(data, names);
  followSections();
  document.documentElement.dataset.ready = "true";
}

function causeBarOf(one) {
  const bar = el("div", { class: "stack", "aria-hidden": "true" });
  const legend = el("ul", { class: "legend" });
  for (const cause of CAUSES) {
    const share = one.cycles[cause] / (one.cycles.total || 1);
    bar.append(piece(share, `--${cause}`));
    legend.append(el("li", {}, swatch(`--${cause}`), `${capital(cause)} ${percent(share)}`, el("span", { class: "muted" }, timeText(one.cycles[cause] / one.clock_hz))));
  }
  return [bar, legend];
}

showComparison().catch((error) => {
  byId("main").prepend(el("p", { class: "problem" }, `This page could not be shown: ${error.message}. It needs a browser of 2024 or later.`));
  throw error;
});
