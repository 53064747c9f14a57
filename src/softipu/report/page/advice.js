// What could be changed, and what the model expects of it.

function adviceSection(report) {
  const effect = (hint) => {
    const parts = [];
    if (hint.bytes) parts.push(hint.bytes > 0 ? `${kibi(hint.bytes)} less on the fullest tile` : `${kibi(-hint.bytes)} more on the fullest tile`);
    if (hint.speed !== 1) parts.push(hint.speed > 1 ? `${digits(hint.speed)}× as fast` : `${digits(hint.speed)}× the speed`);
    return parts.join(", ") || "no change expected in speed or memory";
  };
  const hints = report.hints.map((hint) => el("li", {}, el("p", {}, el("code", {}, hint.option)), el("p", {}, hint.text), el("p", { class: "effect" }, `Expected: ${effect(hint)}.`)));
  const untried = "No changes were tried for this estimate. Reports of runs and of softipu estimate --report have them; in Python, softipu.estimate(…, hints=True).";
  const none = report.hints_tried ? "The model has tried changes on paper; none makes the program clearly better." : untried;
  section("hints", "What if", hints.length ? "Changes that the model has tried on paper." : none, hints.length ? el("ul", { class: "hints" }, ...hints) : null);
}
