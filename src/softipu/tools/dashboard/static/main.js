// Starts the page: keeps what was received and chosen, and tells the parts to draw it.
// The parts know how things look; this module only knows what goes where.

import { Banner } from "./banner.js";
import { Charts } from "./charts.js";
import { Details } from "./details.js";
import { setAttribute, setText } from "./dom.js";
import { clock, plural, timeOfDay } from "./format.js";
import { Grid } from "./grid.js";
import { Processes } from "./processes.js";
import { Stream } from "./stream.js";
import { Tabs, partitionKey } from "./tabs.js";

const find = (id) => document.getElementById(id);

const state = {
  snapshot: null,
  connection: { name: "connecting" },
  waiting: [],
  tab: null, // key of the partition that is shown; null: the active one
  process: null, // key of the process whose IPUs are highlighted
  pinned: null, // key of the IPU whose details stay
  pointed: null, // key of the IPU under the pointer or the keyboard's focus
};

const change = (values) => {
  Object.assign(state, values);
  schedule();
};

const banner = new Banner(find("problems"));
const charts = new Charts(find("charts"));
const tabs = new Tabs(find("tabs"), find("panel"), { onChoose: (tab) => change({ tab }) });
const grid = new Grid(find("grid"), {
  onPoint: (pointed) => change({ pointed }),
  onPin: (key) => change({ pinned: state.pinned === key ? null : key }),
});
const details = new Details(find("details"), { onClose: () => change({ pinned: null }) });
const processes = new Processes(find("processes"), {
  onChoose: (process) => {
    const chosen = state.process === process.key ? null : process.key;
    const home = state.snapshot.partitions.find((one) => one.name === process.partition);
    change({ process: chosen, tab: chosen && home ? partitionKey(home) : state.tab });
  },
});

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") change({ pinned: null, process: null });
});

let scheduled = false;

function schedule() {
  if (scheduled) return;
  scheduled = true;
  requestAnimationFrame(() => {
    scheduled = false;
    render();
  });
}

function render() {
  const { snapshot } = state;
  renderConnection();
  banner.render([...connectionProblems(), ...state.waiting, ...(snapshot?.problems ?? [])]);
  setAttribute(document.body, "data-connection", state.connection.name);
  if (!snapshot?.partitions) return;
  renderFrame(snapshot);
  charts.render(snapshot);
  if (!snapshot.processes.some((one) => one.key === state.process)) state.process = null;
  const partition = tabs.render(snapshot.partitions, state.tab);
  setText(find("partition"), partition ? describe(partition, snapshot.stale) : NOTHING);
  grid.render(partition, snapshot, state);
  details.render(snapshot, partition, state);
  processes.render(snapshot.processes, state);
}

const NOTHING = "No partition can be read. The message above says why; this page looks again.";

function describe(partition, stale) {
  const words = [
    `${plural(partition.size, "IPU")}, ${partition.busy} in use`,
    partition.reconfigurable ? "reconfigurable" : "not reconfigurable",
    `from ${partition.origin === "embedded" ? "the embedded system" : partition.origin}`,
  ];
  if (partition.gcd !== null) words.push(`GCD ${partition.gcd}`);
  if (!partition.active) words.push("not the active partition");
  if (stale) words.push("as last known");
  return words.join(" · ");
}

function renderFrame(snapshot) {
  const systems = snapshot.systems.map(
    (one) =>
      `${one.product}: ${one.ipus} × ${one.chip_product} at ${clock(one.clock_hz)}, ` +
      `${plural(one.boards, "board")} in ${one.machines} × ${one.board_type}`,
  );
  setText(find("systems"), systems.join(" · ") || "No system can be read");
  setText(find("about"), `softipu ${snapshot.softipu} on ${snapshot.server} · ${snapshot.home}`);
  const { busy, ipus, known } = snapshot.totals;
  const count = known ? `${busy}/${ipus} IPUs · ` : "";
  setText(document.querySelector("title"), `${count}softipu dashboard`);
}

function renderConnection() {
  const words = {
    connecting: "Connecting…",
    live: `Live, every ${state.connection.interval} s`,
    waiting: "Waiting for data…",
    lost: "Connection lost, trying again…",
  };
  setAttribute(find("connection"), "data-state", state.connection.name);
  setText(find("connection").querySelector(".words"), words[state.connection.name]);
}

function connectionProblems() {
  if (state.connection.name !== "lost") return [];
  if (state.connection.refusal) return [state.connection.refusal];
  const time = state.snapshot?.time;
  const known = time ? ` What you see is from ${timeOfDay(time)}.` : "";
  return [
    {
      code: "",
      what: `The dashboard's server does not answer.${known}`,
      cause: "It was stopped, is restarting, or the network to it is down.",
      remedy: "This page reconnects by itself. If it does not, run `softipu dashboard` again.",
    },
  ];
}

// The key has done its work: the cookie has it now, and addresses get copied and photographed.
if (location.search) history.replaceState(null, "", location.pathname);

new Stream({
  onSnapshot: (snapshot) => {
    if (snapshot.partitions) charts.add(snapshot);
    change({ snapshot: { ...state.snapshot, ...snapshot }, waiting: [] });
  },
  onWaiting: (body) => change({ waiting: body.problems }),
  onHistory: (body) => {
    charts.merge(body);
    schedule();
  },
  onState: (connection) => change({ connection }),
});
