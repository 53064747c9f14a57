// The connection to the server: live events, one retry after another while it is away, and rest
// while nobody looks at the page. What the events mean is not known here.

const RETRY_SECONDS = [0.5, 1, 2, 3];
const HIDDEN_SECONDS = 10;

export class Stream {
  constructor({ onSnapshot, onWaiting, onHistory, onState }) {
    this.on = { snapshot: onSnapshot, waiting: onWaiting, history: onHistory, state: onState };
    this.source = null;
    this.failures = 0;
    this.heard = 0;
    this.interval = 1;
    this.timer = null;
    document.addEventListener("visibilitychange", () => this.visibility());
    setInterval(() => this.watch(), 1000);
    this.open();
  }

  open() {
    clearTimeout(this.timer);
    this.close();
    this.heard = performance.now();
    const source = new EventSource("api/stream");
    this.source = source;
    source.addEventListener("open", () => this.history());
    source.addEventListener("snapshot", (event) => this.receive("snapshot", event));
    source.addEventListener("waiting", (event) => this.receive("waiting", event));
    source.addEventListener("error", () => this.source === source && this.lost());
  }

  close() {
    this.source?.close();
    this.source = null;
  }

  receive(kind, event) {
    this.heard = performance.now();
    this.failures = 0;
    const body = JSON.parse(event.data);
    if (body.interval) this.interval = body.interval;
    this.on.state({ name: kind === "snapshot" ? "live" : "waiting", interval: this.interval });
    this.on[kind](body);
  }

  async history() {
    try {
      const answer = await fetch("api/history");
      if (answer.ok) this.on.history(await answer.json());
    } catch {
      // The stream finds out by itself that the server is gone.
    }
  }

  async lost() {
    this.close();
    this.failures += 1;
    const pause = RETRY_SECONDS[Math.min(this.failures, RETRY_SECONDS.length) - 1];
    this.timer = setTimeout(() => this.open(), 1000 * pause);
    this.on.state({ name: "lost", refusal: await this.refusal() });
  }

  // An EventSource does not say why it failed: a refusal has a reason that the viewer must see.
  async refusal() {
    try {
      const answer = await fetch("api/history");
      return answer.ok ? null : await answer.json();
    } catch {
      return null;
    }
  }

  watch() {
    const silence = (performance.now() - this.heard) / 1000;
    if (this.source && silence > 3 * this.interval + 6) this.lost();
  }

  visibility() {
    clearTimeout(this.timer);
    if (document.hidden) {
      this.timer = setTimeout(() => this.close(), 1000 * HIDDEN_SECONDS);
    } else if (!this.source) {
      this.open();
    }
  }
}
