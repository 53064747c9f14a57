// Numbers, sizes, times and names as people read them. Pure functions.

export function percent(share) {
  const value = 100 * share;
  return value > 0 && value < 1 ? "<1 %" : `${Math.round(value)} %`;
}

function scaled(value, units, base) {
  let index = 0;
  while (value >= base * 0.9995 && index < units.length - 1) {
    value /= base;
    index += 1;
  }
  const digits = index === 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  return [value.toFixed(digits), units[index]];
}

export const BYTES = ["B", "KiB", "MiB", "GiB", "TiB"];
export const RATES = ["B/s", "kB/s", "MB/s", "GB/s", "TB/s"];
export const WATTS = ["W", "kW", "MW"];

export const bytes = (value) => scaled(value, BYTES, 1024).join(" ");
export const rate = (value) => scaled(value, RATES, 1000).join(" ");
export const watts = (value) =>
  value < 1000 ? `${value.toFixed(value < 100 ? 1 : 0)} W` : scaled(value, WATTS, 1000).join(" ");
export const celsius = (value) => `${value.toFixed(1)} °C`;
export const clock = (hertz) => `${(hertz / 1e9).toFixed(2)} GHz`;

// As the command line tools print it: 13s, 4m1s, 2h5m, 3d4h.
export function duration(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  if (whole < 60) return `${whole}s`;
  if (whole < 3600) return `${Math.floor(whole / 60)}m${whole % 60}s`;
  if (whole < 86400) return `${Math.floor(whole / 3600)}h${Math.floor((whole % 3600) / 60)}m`;
  return `${Math.floor(whole / 86400)}d${Math.floor((whole % 86400) / 3600)}h`;
}

const CLOCK_TIME = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium" });
const DATE_TIME = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "medium" });
export const timeOfDay = (seconds) => CLOCK_TIME.format(new Date(seconds * 1000));

// The time of day, with the date unless it is today's.
export function moment(seconds) {
  const date = new Date(seconds * 1000);
  const today = date.toDateString() === new Date().toDateString();
  return (today ? CLOCK_TIME : DATE_TIME).format(date);
}

// Slot 0 is A, 25 Z, 26 AA …: letters, since IPUs already have numbers.
export function letters(slot) {
  let text = "";
  for (let n = slot + 1; n > 0; n = Math.floor((n - 1) / 26)) {
    text = String.fromCharCode(65 + ((n - 1) % 26)) + text;
  }
  return text;
}

export const COLOURS = 8;

// [0, 1, 2, 3, 8] becomes "0–3, 8".
export function ranges(ids) {
  const sorted = [...ids].sort((a, b) => a - b);
  const parts = [];
  for (let i = 0; i < sorted.length; i += 1) {
    const first = sorted[i];
    while (sorted[i + 1] === sorted[i] + 1) i += 1;
    parts.push(first === sorted[i] ? `${first}` : `${first}–${sorted[i]}`);
  }
  return parts.join(", ");
}

export const plural = (count, one, many = `${one}s`) => `${count} ${count === 1 ? one : many}`;
