// The partitions as tabs, with the usual keys (arrows, Home, End). Says which one is shown.

import { arrange, el, setAttribute, setText } from "./dom.js";

// Files may describe partitions of one name on several servers, or several parts of one.
export const partitionKey = (one) => JSON.stringify([one.name, one.gcd, one.origin]);

export class Tabs {
  constructor(root, panel, { onChoose }) {
    this.root = root;
    this.panel = panel;
    this.onChoose = onChoose;
    this.tabs = new Map();
    this.made = 0;
    root.addEventListener("keydown", (event) => this.key(event));
  }

  render(partitions, wanted) {
    const shown = partitions.find((one) => partitionKey(one) === wanted) ?? partitions[0];
    const nodes = partitions.map((one) => {
      const key = partitionKey(one);
      const tab = this.tabs.get(key) ?? this.make(key);
      const chosen = one === shown;
      setText(tab.name, one.name);
      setText(tab.count, `${one.busy}/${one.size}`);
      setAttribute(tab.count, "title", `${one.busy} of ${one.size} IPUs in use`);
      tab.mark.hidden = !one.active;
      setAttribute(tab.node, "aria-selected", String(chosen));
      setAttribute(tab.node, "tabindex", chosen ? 0 : -1);
      if (chosen) setAttribute(this.panel, "aria-labelledby", tab.node.id);
      return tab.node;
    });
    arrange(this.root, nodes);
    const keys = new Set(partitions.map(partitionKey));
    for (const key of [...this.tabs.keys()]) if (!keys.has(key)) this.tabs.delete(key);
    return shown;
  }

  make(key) {
    const name = el("span", { class: "tab-name" });
    const mark = el("span", { class: "tab-mark" }, "active");
    const count = el("span", { class: "tab-count" });
    this.made += 1;
    const node = el(
      "button",
      { type: "button", role: "tab", id: `tab-${this.made}`, "aria-controls": "panel" },
      name, mark, count,
    );
    node.addEventListener("click", () => this.onChoose(key));
    const tab = { node, name, mark, count };
    this.tabs.set(key, tab);
    return tab;
  }

  key(event) {
    const nodes = [...this.root.children];
    const at = nodes.indexOf(document.activeElement);
    const to = {
      ArrowRight: (at + 1) % nodes.length,
      ArrowLeft: (at - 1 + nodes.length) % nodes.length,
      Home: 0,
      End: nodes.length - 1,
    }[event.key];
    if (to === undefined || at < 0) return;
    event.preventDefault();
    nodes[to].focus();
    nodes[to].click();
  }
}
