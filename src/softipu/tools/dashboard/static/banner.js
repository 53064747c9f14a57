// Problems, each with its code, what happened, why, and the way out. Rewritten only when they
// change, so that a screen reader says each of them once.

import { el } from "./dom.js";

export class Banner {
  constructor(root) {
    this.root = root;
    this.shown = "";
  }

  render(problems) {
    const wanted = JSON.stringify(problems.map((one) => [one.code, steady(one.what)]));
    if (wanted === this.shown) return;
    this.shown = wanted;
    this.root.replaceChildren(...problems.map(card));
  }
}

// A number of seconds that grows is no news.
const steady = (text) => text.replace(/\d+ s\b/g, "s");

function card(problem) {
  const head = el("p", { class: "problem-what" });
  head.append(el("span", { class: "problem-mark", "aria-hidden": "true" }, "!"));
  if (problem.code) head.append(el("strong", { class: "problem-code" }, problem.code), " ");
  head.append(problem.what);
  const rest = el("p", { class: "problem-rest" });
  rest.append(el("b", {}, "Cause: "), problem.cause, el("br"));
  rest.append(el("b", {}, "Way out: "), problem.remedy);
  return el("div", { class: "problem" }, head, rest);
}
