// Blocks and steps in time, so that any moment of any IPU can be asked what happens then.

class Lanes {
  constructor(report, steps) {
    const { timeline } = report;
    this.steps = steps;
    this.groups = timeline.groups.map((group) => this.group(group));
    this.blocks = timeline.blocks.group.map((number, i) => ({
      number, group: this.groups[number], start: timeline.blocks.start[i],
      end: timeline.blocks.start[i] + this.groups[number].cycles,
      microBatch: timeline.blocks.micro_batch[i], iteration: timeline.blocks.iteration[i],
    }));
    this.ipus = [...new Set(this.groups.map((group) => group.ipu))].sort((a, b) => a - b);
    this.perIpu = new Map(this.ipus.map((ipu) => [ipu, []]));
    for (const block of this.blocks) this.perIpu.get(block.group.ipu).push(block);
    for (const blocks of this.perIpu.values()) blocks.sort((a, b) => a.start - b.start);
    this.end = this.blocks.reduce((most, block) => Math.max(most, block.end), 0);
    this.complete = timeline.complete;
  }

  // Starts of the steps, and how much of each cause lies before each: a moment's share is then a
  // difference of two sums, at any zoom.
  group(group) {
    const numbers = group.steps.flatMap(([first, end]) => Array.from({ length: end - first }, (_, k) => first + k));
    const starts = new Float64Array(numbers.length + 1);
    const sums = Object.fromEntries(CAUSE_ORDER.map((cause) => [cause, new Float64Array(numbers.length + 1)]));
    numbers.forEach((i, k) => {
      starts[k + 1] = starts[k] + this.steps.once[i];
      for (const cause of CAUSE_ORDER) sums[cause][k + 1] = sums[cause][k] + this.steps.number(cause, i);
    });
    return { ...group, numbers, starts, sums, cycles: starts[numbers.length] };
  }

  // The index of the step that runs `time` after the start of its group.
  stepAt(group, time) {
    let low = 0;
    let high = group.numbers.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (group.starts[middle] <= time) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  // Cycles of each cause before `time`, written into `into`.
  before(group, time, into) {
    const k = this.stepAt(group, time);
    let left = Math.min(time, group.cycles) - group.starts[k];
    CAUSE_ORDER.forEach((cause, c) => {
      const part = Math.max(0, Math.min(left, this.steps.number(cause, group.numbers[k])));
      into[c] = group.sums[cause][k] + part;
      left -= part;
    });
  }

  // Blocks of an IPU that touch a stretch of time. They don't overlap, so their ends are sorted too.
  between(ipu, from, to) {
    const blocks = this.perIpu.get(ipu);
    let low = 0;
    let high = blocks.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (blocks[middle].end <= from) low = middle + 1;
      else high = middle;
    }
    const found = [];
    while (low < blocks.length && blocks[low].start < to) {
      found.push(blocks[low]);
      low += 1;
    }
    return found;
  }

  // Busy cycles of an IPU over everything shown.
  busy(ipu) { return this.perIpu.get(ipu).reduce((sum, block) => sum + block.group.cycles, 0); }
}

const blockName = (block) => (block.microBatch < 0 ? `${block.group.phase}, stage ${block.group.stage}` : `${block.group.phase} of micro-batch ${whole(block.microBatch)}, stage ${block.group.stage}`);
