// Reservations as a calendar of some weeks, and one of them.

import { ask, button, cells, clock, el, fields, minute, names, nodesInShort, number, page, plural, state, table, time } from "./base.js";

/** Reservations that a day shows; the others are counted. */
const LANES_MAX = 4;
/** Repetitions that are drawn of one reservation at most. */
const REPEATS_MAX = 400;

/** Weeks that are shown at a time. */
const WEEKS = 5;
/** How far the calendar was moved, in steps of four weeks. */
let offset = 0;

const dayOf = (date) => new Date(date.getFullYear(), date.getMonth(), date.getDate());
const plusDays = (date, days) => new Date(date.getFullYear(), date.getMonth(), date.getDate() + days, date.getHours(), date.getMinutes(), date.getSeconds());
const sameDay = (a, b) => dayOf(a).getTime() === dayOf(b).getTime();

/** How many days after one run of a reservation the next one begins; 0 if it comes once. */
function step(reservation, from) {
  const has = (flag) => reservation.flags.includes(flag);
  if (has("DAILY") || has("HOURLY")) return 1;
  if (has("WEEKLY")) return 7;
  const day = from.getDay();
  if (has("WEEKDAY")) return day === 5 ? 3 : day === 6 ? 2 : 1;
  if (has("WEEKEND")) return day === 6 ? 1 : 6 - day;
  return 0;
}

/** When a reservation is, and when it will be again, up to a day. */
export function runs(reservation, until) {
  let [start, end] = [new Date((number(reservation.start_time) ?? 0) * 1000), new Date((number(reservation.end_time) ?? 0) * 1000)];
  const found = [{ reservation, start, end, again: false }];
  for (let count = 0; count < REPEATS_MAX; count += 1) {
    const days = step(reservation, start);
    if (days === 0) break;
    [start, end] = [plusDays(start, days), plusDays(end, days)];
    if (start >= until) break;
    found.push({ reservation, start, end, again: true });
  }
  return found;
}

/** Gives each run of a week a lane that no other has on its days; `lanes[lane][day]`. */
function lanesOf(week, all) {
  const [first, last] = [week[0], plusDays(week[6], 1)];
  const lanes = [];
  const here = all.filter((run) => run.start < last && run.end > first).sort((a, b) => a.start - b.start || b.end - a.end);
  for (const run of here) {
    const days = week.map((day, at) => (run.start < plusDays(day, 1) && run.end > day ? at : -1)).filter((at) => at >= 0);
    let lane = lanes.findIndex((taken) => days.every((at) => !taken[at]));
    if (lane < 0) lane = lanes.push(new Array(7).fill(undefined)) - 1;
    for (const at of days) lanes[lane][at] = run;
  }
  return lanes;
}


function chip(run, day, isFirst) {
  const { reservation, start, end, again } = run;
  const parts = ["chip", again && "again", reservation.flags.includes("MAINT") && "maint", start >= day && "begins", end <= plusDays(day, 1) && "ends"];
  const attributes = { class: parts.filter(Boolean).join(" ") };
  // One link for the days of a week that follow each other; the others continue its bar.
  if (!isFirst) return el("span", { ...attributes, "aria-hidden": "true" }, "\u00a0");
  const words = `${reservation.name}${again ? ", repeated" : ""}: ${minute(start / 1000)} to ${minute(end / 1000)}, ${plural(reservation.node_count, "node")}`;
  return el("a", { ...attributes, href: `#/reservation/${encodeURIComponent(reservation.name)}`, title: words, "aria-label": words },
    start >= day && el("span", { class: "hour" }, `${clock(start)} `), reservation.name);
}

function dayCell(day, at, lanes) {
  const now = new Date();
  const today = sameDay(day, now);
  const kinds = ["day", day < dayOf(now) && "past", today && "today"].filter(Boolean).join(" ");
  const shown = lanes.slice(0, LANES_MAX).map((lane) => (lane[at] ? chip(lane[at], day, at === 0 || lane[at - 1] !== lane[at]) : el("span", { class: "chip none", "aria-hidden": "true" }, "\u00a0")));
  const left = lanes.slice(LANES_MAX).filter((lane) => lane[at]).length;
  const label = el("time", { datetime: `${day.getFullYear()}-${String(day.getMonth() + 1).padStart(2, "0")}-${String(day.getDate()).padStart(2, "0")}` },
    day.getDate() === 1 ? day.toLocaleDateString([], { day: "numeric", month: "short" }) : String(day.getDate()));
  return el("td", { class: kinds, "aria-current": today ? "date" : undefined }, label, shown, left > 0 && el("span", { class: "more" }, `+${left}`));
}

function weeksOf(date) {
  // Weeks begin on Monday, as ISO 8601 has them.
  const start = plusDays(dayOf(date), -((date.getDay() + 6) % 7));
  return Array.from({ length: WEEKS }, (_, week) => Array.from({ length: 7 }, (_unused, at) => plusDays(start, 7 * week + at)));
}

function calendar(all, weeks, title) {
  const until = plusDays(weeks.at(-1)[6], 1);
  const occurrences = all.flatMap((reservation) => runs(reservation, until));
  const weekdays = weeks[0].map((day) => el("th", { scope: "col" }, day.toLocaleDateString([], { weekday: "short" })));
  const rows = weeks.map((week) => {
    const lanes = lanesOf(week, occurrences);
    return el("tr", {}, week.map((day, at) => dayCell(day, at, lanes)));
  });
  return el("table", { class: "calendar" }, el("caption", { class: "skip" }, `Reservations from ${title}`), el("thead", {}, el("tr", {}, weekdays)), el("tbody", {}, rows));
}

const isActive = (r) => { const now = Date.now() / 1000; return (number(r.start_time) ?? 0) <= now && now < (number(r.end_time) ?? 0); };

export async function reservations() {
  const all = (await ask("reservations")).reservations;
  const weeks = weeksOf(plusDays(new Date(), 28 * offset));
  const long = { day: "numeric", month: "short", year: "numeric" };
  const title = `${weeks[0][0].toLocaleDateString([], long)} to ${weeks.at(-1)[6].toLocaleDateString([], long)}`;
  const go = (steps) => () => { offset = steps; page.show(); };
  return [
    el("h1", {}, "Reservations"),
    el("div", { class: "bar month" },
      button("weeks-before", "‹", go(offset - 1), { "aria-label": "Four weeks before" }),
      el("h2", { "aria-live": "polite" }, title),
      button("weeks-after", "›", go(offset + 1), { "aria-label": "Four weeks after" }),
      button("weeks-now", "Today", go(0))),
    calendar(all, weeks, title),
    el("h2", {}, "All of them"),
    ...(all.length === 0 ? [el("p", { class: "nothing" }, "There are no reservations. Operators make them with scontrol create reservation.")] : table("Reservations", all, [
      { title: "Name", value: (r) => r.name, show: (r) => el("a", { href: `#/reservation/${encodeURIComponent(r.name)}` }, r.name), class: "cut" },
      { title: "State", value: (r) => (isActive(r) ? 0 : 1), show: (r) => state(isActive(r) ? "ACTIVE" : "INACTIVE") },
      { title: "From", value: (r) => number(r.start_time) ?? 0, show: (r) => minute(r.start_time) },
      { title: "Until", value: (r) => number(r.end_time) ?? 0, show: (r) => minute(r.end_time) },
      { title: "Nodes", value: (r) => r.node_list, class: "wide" },
      { title: "Users", value: (r) => r.users },
      { title: "Accounts", value: (r) => r.accounts },
      { title: "Flags", value: (r) => r.flags.join(", "), class: "wide" },
    ], { column: 2, down: false })),
  ];
}

export async function reservation(name) {
  const one = (await ask(`reservation/${encodeURIComponent(name)}`)).reservations[0];
  const wanted = new Set(names(one.node_list));
  // PrivateData may hide the nodes.
  const known = wanted.size > 0 ? await nodesInShort().catch(() => []) : [];
  const nodes = known.filter((node) => wanted.has(node.name));
  return [
    el("h1", {}, `Reservation ${one.name}`),
    el("p", {}, state(isActive(one) ? "ACTIVE" : "INACTIVE")),
    fields([
      ["From", time(one.start_time)],
      ["Until", time(one.end_time)],
      ["Nodes", one.node_list],
      ["Cores", one.core_count ? String(one.core_count) : ""],
      ["Users", one.users],
      ["Groups", one.groups],
      ["Accounts", one.accounts],
      ["Partition", one.partition],
      ["Licenses", one.licenses],
      ["Features", one.features],
      ["Flags", one.flags.join(", ")],
    ]),
    nodes.length > 0 && [el("h2", {}, `Its ${plural(nodes.length, "node")}`), cells("Nodes of the reservation", nodes)],
    el("p", {}, el("a", { href: "#/reservations" }, "All reservations")),
  ];
}
