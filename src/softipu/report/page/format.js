// Numbers with their units, as people read them. Pure functions.

const WHOLE = new Intl.NumberFormat("en-GB", { maximumFractionDigits: 0 });
const whole = (value) => WHOLE.format(value);

// Three digits that count: 1.23, 12.3, 123, 1,234.
function digits(value) {
  const size = Math.abs(value);
  if (size >= 99.95 || size === 0) return whole(value);
  return value.toFixed(size >= 9.995 ? 1 : size >= 0.9995 ? 2 : 3);
}

function scaled(value, units, base) {
  let index = 0;
  let left = value;
  while (Math.abs(left) >= base * 0.9995 && index < units.length - 1) {
    left /= base;
    index += 1;
  }
  return [index === 0 && Number.isInteger(left) ? whole(left) : digits(left), units[index]];
}

const bytesParts = (value) => scaled(value, ["B", "KiB", "MiB", "GiB", "TiB"], 1024);
const bytes = (value) => bytesParts(value).join(" ");
// Tile memory always in KiB, so that what is compared has one unit.
const kibiParts = (value) => [digits(value / 1024), "KiB"];
const kibi = (value) => (value !== 0 && Math.abs(value) < 1024 ? bytes(value) : kibiParts(value).join(" "));
const cyclesText = (value) => {
  const [number, unit] = scaled(value, ["", "k", "M", "G", "T"], 1000);
  return `${number}${unit ? ` ${unit}` : ""} cycles`;
};
const flopsParts = (value) => scaled(value, ["FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP", "EFLOP"], 1000);
const flopsText = (value) => flopsParts(value).join(" ");

function timeParts(seconds) {
  const size = Math.abs(seconds);
  if (size === 0) return ["0", "s"];
  if (size < 999.5e-9) return [digits(seconds * 1e9), "ns"];
  if (size < 999.5e-6) return [digits(seconds * 1e6), "µs"];
  if (size < 0.9995) return [digits(seconds * 1e3), "ms"];
  return [digits(seconds), "s"];
}
const timeText = (seconds) => timeParts(seconds).join(" ");

// A time on an axis: as many digits as tell it from its neighbours, `step` away.
function tickTime(seconds, step) {
  if (seconds === 0) return "0";
  const [unit, size] = [["s", 1], ["ms", 1e-3], ["µs", 1e-6], ["ns", 1e-9]].find(([, one]) => seconds >= one * 0.9995) ?? ["ns", 1e-9];
  const decimals = Math.max(0, Math.min(9, Math.ceil(-Math.log10(step / size) - 1e-9)));
  return `${(seconds / size).toFixed(decimals)} ${unit}`;
}

function percent(share) {
  const value = 100 * share;
  if (value !== 0 && Math.abs(value) < 0.1) return value > 0 ? "<0.1 %" : ">−0.1 %";
  return `${Math.abs(value) >= 9.95 || value === 0 ? Math.round(value) : value.toFixed(1)} %`;
}

const signed = (value, text) => (value > 0 ? `+${text(value)}` : value < 0 ? `−${text(-value)}` : "±0");
const plural = (count, one, many = `${one}s`) => `${whole(count)} ${count === 1 ? one : many}`;
const words = (name) => name.replaceAll("_", " ");
const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

// Round steps for an axis: 1, 2 or 5 times a power of ten (or of two, for bytes).
function niceStep(range, most, binary = false) {
  if (!(range > 0)) return 1;
  if (binary) return 2 ** Math.ceil(Math.log2(range / most));
  const rough = range / most;
  const power = 10 ** Math.floor(Math.log10(rough));
  return power * [1, 2, 5, 10].find((step) => step * power >= rough * 0.999);
}
