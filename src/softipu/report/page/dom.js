// Small helpers that build the page. Data only ever becomes text or attributes, never markup, so a
// hostile name of an operator stays a name.

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

const el = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes = {}, ...children) => fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
const byId = (id) => document.getElementById(id);

// A coloured part of a bar; widths go through the CSSOM.
function piece(share, colour) {
  const node = el("i");
  node.style.width = `${100 * share}%`;
  node.style.background = `var(${colour})`;
  return node;
}

function swatch(colour) {
  const node = el("span", { class: "swatch", "aria-hidden": "true" });
  node.style.setProperty("--paint", `var(${colour})`);
  return node;
}

function meter(share) {
  const node = el("div", { class: share > 1 ? "meter over" : "meter", "aria-hidden": "true" }, el("i"));
  node.firstChild.style.width = `${100 * Math.min(1, share)}%`;
  return node;
}

// Sections register themselves for the row of links below the header.
function section(id, title, explanation, ...children) {
  const heading = el("h2", { id: `${id}-title` }, title);
  const head = el("div", { class: "head" }, heading, explanation ? el("p", {}, explanation) : null);
  byId("main").append(el("section", { id, "aria-labelledby": `${id}-title` }, head, ...children));
  const list = byId("sections").querySelector("ul") ?? byId("sections").appendChild(el("ul"));
  list.append(el("li", {}, el("a", { href: `#${id}` }, title)));
}

// Marks the link of the section that is being read.
function followSections() {
  const links = new Map([...document.querySelectorAll("nav a")].map((link) => [link.hash.slice(1), link]));
  const mark = () => {
    let current = null;
    for (const id of links.keys()) if (byId(id).getBoundingClientRect().top < innerHeight / 3) current = id;
    const last = [...links.keys()].at(-1);
    if (scrollY > 0 && innerHeight + scrollY >= document.body.scrollHeight - 4) current = last;
    for (const [id, link] of links) {
      if (id === (current ?? [...links.keys()][0])) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    }
  };
  let asked = false;
  const soon = () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => { asked = false; mark(); });
  };
  addEventListener("scroll", soon, { passive: true });
  addEventListener("resize", soon);
  mark();
}

// Light, dark, or as the system has it; charts redraw when it changes.
const themeListeners = [];
function themeButton() {
  const order = ["auto", "light", "dark"];
  let now = 0;
  const button = el("button", { type: "button", class: "plain-button", id: "theme" }, "Theme: auto");
  const tell = () => themeListeners.forEach((listen) => listen());
  button.addEventListener("click", () => {
    now = (now + 1) % order.length;
    if (now) document.documentElement.dataset.theme = order[now];
    else delete document.documentElement.dataset.theme;
    button.textContent = `Theme: ${order[now]}`;
    tell();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", tell);
  return button;
}

// The one tooltip: follows the pointer, stays inside the window.
const tip = {
  show(x, y, lines) {
    const node = byId("tip");
    node.replaceChildren(...lines.filter(Boolean).map(([strong, rest]) => el("div", {}, strong ? el("b", {}, strong) : null, strong && rest ? " " : null, rest ? el("span", {}, rest) : null)));
    node.hidden = false;
    const box = node.getBoundingClientRect();
    const left = x + 14 + box.width > innerWidth - 6 ? x - 14 - box.width : x + 14;
    const top = y + 16 + box.height > innerHeight - 6 ? y - 12 - box.height : y + 16;
    node.style.left = `${Math.max(6, left)}px`;
    node.style.top = `${Math.max(6, top)}px`;
  },
  hide() { byId("tip").hidden = true; },
};

const definition = (pairs) => el("dl", { class: "pairs" }, ...pairs.filter(Boolean).map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
