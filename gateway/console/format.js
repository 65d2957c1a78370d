// Numbers, amounts and moments as words.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export const number = (value) => (value === null || value === undefined ? "–" : whole.format(value));

export const compact = (value) => (value === null || value === undefined ? "–" : value < 10000 ? whole.format(value) : short.format(value));

/** USD, with as many digits as small amounts need. */
export function money(value) {
  if (value === null || value === undefined) return "–";
  if (value === 0) return "$0";
  const size = Math.abs(value);
  return `$${size >= 100 ? whole.format(value) : size >= 0.1 ? value.toFixed(2) : size >= 0.001 ? value.toFixed(4) : value.toPrecision(2)}`;
}

/** A length of time in milliseconds. */
export function span(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60000) return `${(ms / 1000).toFixed(ms < 10000 ? 1 : 0)} s`;
  const minutes = Math.round(ms / 60000);
  return minutes < 90 ? `${minutes} min` : minutes < 2880 ? `${Math.round(minutes / 60)} h` : `${Math.round(minutes / 1440)} days`;
}

const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const dated = new Intl.DateTimeFormat("en-GB", { day: "2-digit", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit" });
const whole_date = new Intl.DateTimeFormat("en-GB", { day: "2-digit", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit" });

/** A moment in unix seconds: the time of today, else with its day. */
export function moment(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const at = new Date(seconds * 1000);
  return at.toDateString() === new Date().toDateString() ? clock.format(at) : dated.format(at);
}

const date = new Intl.DateTimeFormat("en-GB", { day: "2-digit", month: "short", year: "numeric" });

/** The day of a moment. */
export const day_of = (seconds) => date.format(new Date(seconds * 1000));

/** A moment in full. */
export const day = (seconds) => (seconds === null || seconds === undefined ? "–" : whole_date.format(new Date(seconds * 1000)));

export function ago(seconds) {
  const gone = Date.now() / 1000 - seconds;
  return gone < 5 ? "now" : `${span(gone * 1000)} ago`;
}

export const percent = (part, all) => (all ? `${((100 * part) / all).toFixed(part && part / all < 0.1 ? 1 : 0)} %` : "0 %");

/** The colour of a request: failed ones are bad, those that needed more than one attempt are worth a look. */
export function grade(row) {
  if (row.status >= 400 || row.class) return row.class === "client_gone" ? "warn" : "bad";
  return row.attempts.filter((attempt) => !attempt.skipped).some((attempt) => attempt.class) ? "warn" : "ok";
}

export const RUN = { completed: "ok", running: "busy", queued: "busy", waiting: "warn", incomplete: "warn", failed: "bad", cancelled: "plain" };
