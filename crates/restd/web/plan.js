// The scheduler's plan: what runs until when, and when what waits is expected to start, by partition or node.

import { ask, button, choice, clock, duration, el, health, inOrder, legend, minute, names, nodesInShort, number, page, planLink, plural, roving, search, state, svg, table, time,
  useOf } from "./base.js";
import { runs } from "./calendar.js";
import { queue } from "./jobs.js";

/** Jobs that the plan asks for: those that run, and those that start soonest. */
const PLANNED_MAX = 4000;
/** Most nodes that have a row each unless something else is chosen. */
const NODES_AT_FIRST = 60;
/** Nodes of one page of the plan. */
const NODES_OF_PAGE = 40;
/** Jobs beside each other that a row shows; the others are counted. */
const LANES_MAX = 12;
/** A partition with more jobs is drawn as CPUs in use alone. */
const BARS_MAX = 80;
/** A bar below this share of the window, in percent, has no text. */
const THIN = 2;
/** Steps of a drawing of CPUs in use. */
const STEPS = 160;
/** Of the span that is shown, what lies in the past. */
const PAST = 0.1;
const HOUR = 3600;
const DAY = 24 * HOUR;
const spans = [["2h", "2 hours", 2 * HOUR], ["6h", "6 hours", 6 * HOUR], ["12h", "12 hours", 12 * HOUR], ["1d", "1 day", DAY], ["3d", "3 days", 3 * DAY], ["1w", "1 week", 7 * DAY], ["1m", "1 month", 30 * DAY]];
const tickSteps = [600, 900, 1800, HOUR, 2 * HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 2 * DAY, 7 * DAY, 14 * DAY];
/** Pixels that a time at the axis needs. */
const TICK_PX = 70;
/** Half of what the word at the present time needs. */
const NOW_PX = 22;

const runsNow = (job) => job.state.some((name) => ["RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING"].includes(name));
const waits = (job) => job.state.includes("PENDING") && !runsNow(job);

/** The jobs of a plan, each with when it begins and ends. */
function placed(jobs, now) {
  return jobs.filter((job) => runsNow(job) || (waits(job) && job.expected)).map((job) => {
    const running = runsNow(job);
    const end = job.predicted_end || job.end || Infinity;
    return { job, running, from: running ? job.start : Math.max(job.start, now), to: running ? Math.max(end, now) : end };
  });
}

/** The shortest span in which most of what is planned ends; of nodes a day at most, in which single jobs are seen. */
function fitting(all, now, by) {
  const ends = all.map((one) => one.to - now).filter(Number.isFinite).sort((a, b) => a - b);
  const most = ends[Math.floor(ends.length * 0.9)] ?? DAY;
  const longest = by === "node" ? "1d" : "1w";
  return (spans.find(([name, , length]) => length >= most || name === longest) ?? spans.at(-1))[0];
}

/** A window of time, and where in it a time is, in percent. */
function windowOf(now, length) {
  const from = now - PAST * length;
  const to = now + (1 - PAST) * length;
  return { now, from, to, at: (value) => 100 * Math.min(1, Math.max(0, (value - from) / (to - from))), shows: (one) => one.from < to && one.to > from };
}

function ticks(frame, width) {
  const step = tickSteps.find((length) => ((frame.to - frame.from) / length) * TICK_PX <= width) ?? tickSteps.at(-1);
  const made = [];
  const first = new Date(frame.from * 1000);
  // Whole hours and days of the local time.
  let at = new Date(first.getFullYear(), first.getMonth(), first.getDate()).getTime() / 1000;
  for (; at < frame.to; at += step) {
    if (at < frame.from) continue;
    const date = new Date(at * 1000);
    const midnight = date.getHours() === 0 && date.getMinutes() === 0;
    made.push([at, step >= DAY || midnight ? date.toLocaleDateString([], { day: "numeric", month: "short" }) : clock(date)]);
  }
  return made;
}

/** Pixels beside the labels, as the style sheet has them. */
function trackWidth() {
  const whole = document.getElementById("main").clientWidth;
  return Math.max(120, whole - (window.innerWidth <= 480 ? 112 : 186));
}

const left = (percentage) => ({ style: { left: `${percentage}%` } });

function axis(frame, marks, width) {
  // What would lie below the word at the present time, or be cut off, is left out.
  const [room, half, now] = [(100 * TICK_PX) / width, (100 * NOW_PX) / width, frame.at(frame.now)];
  const fits = (at) => (at + room < now - half || at > now + half) && at + room < 101;
  return el("div", { class: "gantt-row axis", "aria-hidden": "true" }, el("div", { class: "gantt-label" }),
    el("div", { class: "track" }, marks.map(([at, text]) => fits(frame.at(at)) && el("span", { class: "tick-label", ...left(frame.at(at)) }, text)),
      el("span", { class: "now-label", ...left(now) }, "now")));
}

const grid = (frame, marks) => [...marks.map(([at]) => el("span", { class: "tick", ...left(frame.at(at)) })), el("span", { class: "now", ...left(frame.at(frame.now)) })];

/** Gives each job the first lane that is free when it begins; those for which none of the lanes that are shown is free have none. */
function inLanes(all) {
  const ends = [];
  return [...all].sort((a, b) => a.from - b.from || a.job.job_id - b.job.job_id).flatMap((one) => {
    let lane = ends.findIndex((end) => end <= one.from);
    if (lane < 0) lane = ends.length;
    if (lane >= LANES_MAX) return [];
    ends[lane] = one.to;
    return [{ ...one, lane }];
  });
}

function describe({ job, running, to }) {
  const until = Number.isFinite(to) ? time(Math.round(to)) : "without a limit";
  const where = job.nodes ? ` on ${job.nodes}` : "";
  const size = `${plural(job.cpus, "CPU")}${where}`;
  return running ? `Job ${job.job} ${job.name} of ${job.user}: runs since ${time(job.start)} until ${until}, ${size}`
    : `Job ${job.job} ${job.name} of ${job.user}: expected ${job.expected === "estimate" ? "about " : ""}${time(job.start)} until ${until}, ${size}`;
}

function bar(frame, one) {
  const { job, running, from, to, lane } = one;
  const [start, end] = [frame.at(from), frame.at(to)];
  const kinds = ["gantt-bar", running ? "runs" : job.expected, job.user === page.user && "own", from < frame.from && "before", to > frame.to && "after", end - start < THIN && "thin"];
  const text = describe(one);
  return el("a", { class: kinds.filter(Boolean).join(" "), href: `#/job/${job.job_id}`, title: text, "aria-label": text,
    style: { left: `${start}%`, width: `${end - start}%`, "--lane": String(lane) } }, end - start < THIN ? "" : `${job.job} ${job.name}`);
}

/** Reservations of a node or partition as bands behind its jobs. */
function bands(frame, reservations, concerns) {
  const here = reservations.filter(concerns).flatMap((reservation) => runs(reservation, new Date(frame.to * 1000)));
  return here.map(({ reservation, start, end }) => ({ reservation, from: start / 1000, to: end / 1000 })).filter(frame.shows).map(({ reservation, from, to }) => {
    const text = `Reservation ${reservation.name}: ${time(from)} to ${time(to)}`;
    return el("a", { class: "band", href: `#/reservation/${encodeURIComponent(reservation.name)}`, title: text, "aria-label": text,
      style: { left: `${frame.at(from)}%`, width: `${frame.at(to) - frame.at(from)}%` } });
  });
}

function barsOf(frame, all) {
  const here = all.filter(frame.shows);
  const shown = inLanes(here);
  return { count: shown.reduce((most, one) => Math.max(most, one.lane + 1), 1), bars: shown.map((one) => bar(frame, one)), hidden: here.length - shown.length };
}

function row(label, frame, marks, all, more = {}) {
  const { count, bars, hidden } = more.withoutBars ? { count: 0, bars: [], hidden: 0 } : barsOf(frame, all);
  return el("div", { class: "gantt-row", role: "listitem" }, el("div", { class: `gantt-label ${more.kind ?? ""}` }, label, hidden > 0 && el("small", {}, `${plural(hidden, "job")} more`)),
    el("div", { class: `track${more.above ? " has-use" : ""}`, style: { "--lanes": String(count) } }, grid(frame, marks), more.bands, more.above, bars));
}

/** CPUs in use at each step of the window: of jobs that run, and of those that are expected. */
function useOverTime(frame, all) {
  const [running, planned] = [new Float64Array(STEPS + 1), new Float64Array(STEPS + 1)];
  const stepOf = (at) => Math.round((STEPS * Math.min(Math.max(at, frame.from), frame.to) - STEPS * frame.from) / (frame.to - frame.from));
  for (const one of all.filter(frame.shows)) {
    const sums = one.running ? running : planned;
    sums[stepOf(one.from)] += one.job.cpus;
    sums[stepOf(one.to)] -= one.job.cpus;
  }
  for (let at = 1; at <= STEPS; at += 1) {
    running[at] += running[at - 1];
    planned[at] += planned[at - 1];
  }
  return { running, planned };
}

/** An area of steps between two heights. */
function area(kind, below, above, capacity) {
  const y = (value) => (100 - 100 * Math.min(1, value / capacity)).toFixed(2);
  const top = [];
  const bottom = [];
  for (let at = 0; at < STEPS; at += 1) {
    top.push(`${at},${y(above(at))} ${at + 1},${y(above(at))}`);
    bottom.unshift(`${at + 1},${y(below(at))} ${at},${y(below(at))}`);
  }
  return svg("polygon", { class: kind, points: `${top.join(" ")} ${bottom.join(" ")}` });
}

function useDrawing(frame, all, capacity, name) {
  const { running, planned } = useOverTime(frame, all);
  const nowStep = Math.min(STEPS - 1, Math.round(STEPS * PAST));
  const peak = Math.max(...planned.map((value, at) => value + running[at]));
  return svg("svg", { class: "use", viewBox: `0 0 ${STEPS} 100`, preserveAspectRatio: "none", role: "img",
    "aria-label": `CPUs of ${name}: ${Math.round(running[nowStep])} of ${capacity} in use now, ${Math.round(Math.min(peak, capacity))} at most in the time shown` },
  area("runs", () => 0, (at) => running[at], capacity), area("plan", (at) => running[at], (at) => running[at] + planned[at], capacity));
}

function partitionRows(frame, marks, all, nodes, reservations, counts) {
  const parts = [...new Set([...nodes.flatMap((node) => node.partitions), ...all.map((one) => one.job.partition.split(",")[0])])].sort(inOrder);
  return parts.map((name) => {
    const members = nodes.filter((node) => node.partitions.includes(name));
    const own = new Set(members.map((node) => node.name));
    const here = all.filter((one) => one.job.partition.split(",")[0] === name);
    const use = useOf(members);
    const count = counts.find((entry) => entry.partition === name);
    const label = [el("a", { href: planLink({ by: "node", partition: name }) }, name), el("small", {}, `${use.used.toLocaleString()} of ${plural(use.cpus, "CPU")}`),
      el("small", {}, `${(count?.running ?? 0).toLocaleString()} run, ${(count?.pending ?? 0).toLocaleString()} wait`)];
    return row(label, frame, marks, here, {
      above: use.cpus > 0 && useDrawing(frame, here, use.cpus, name),
      withoutBars: here.filter(frame.shows).length > BARS_MAX,
      bands: bands(frame, reservations, (r) => names(r.node_list).some((node) => own.has(node))),
    });
  });
}

/** The jobs at each of some nodes. */
function byNode(all, wanted) {
  const lists = new Map();
  const found = new Map(wanted.map((name) => [name, []]));
  for (const one of all) {
    const list = one.job.nodes;
    if (!list) continue;
    if (!lists.has(list)) lists.set(list, names(list).filter((name) => found.has(name)));
    for (const name of lists.get(list)) found.get(name).push(one);
  }
  return found;
}

function nodeRows(frame, marks, all, nodes, reservations) {
  const found = byNode(all, nodes.map((node) => node.name));
  const reserved = reservations.map((reservation) => [reservation, new Set(names(reservation.node_list))]);
  const rows = nodes.map((node) => {
    const [kind, mark, words] = health(node);
    const label = [el("a", { href: `#/node/${encodeURIComponent(node.name)}` }, node.name), el("small", { class: kind }, `${mark && `${mark} `}${words}`)];
    const here = reserved.filter(([, own]) => own.has(node.name)).map(([reservation]) => reservation);
    return row(label, frame, marks, found.get(node.name), { kind: "node", bands: bands(frame, here, () => true) });
  });
  const nowhere = all.filter((one) => !one.job.nodes);
  return nowhere.length > 0 ? [...rows, row(["No nodes yet", el("small", {}, "estimates")], frame, marks, nowhere)] : rows;
}

function startsTable(all) {
  const waiting = all.filter((one) => !one.running);
  if (waiting.length === 0) return [];
  return [el("h2", {}, "Expected starts"), table("Expected starts", waiting, [
    { title: "Job", value: (one) => one.job.job_id, show: ({ job }) => el("a", { href: `#/job/${job.job_id}` }, job.job) },
    { title: "Name", value: (one) => one.job.name, class: "cut" },
    { title: "User", value: (one) => one.job.user },
    { title: "Partition", value: (one) => one.job.partition },
    { title: "CPUs", value: (one) => one.job.cpus, class: "right" },
    { title: "Expected start", value: (one) => one.from, show: ({ job, from }) => `${job.expected === "estimate" ? "about " : ""}${minute(Math.round(from))}` },
    { title: "In", value: (one) => one.from, show: ({ from }) => duration(from - Date.now() / 1000), class: "right" },
    { title: "Nodes", value: (one) => one.job.nodes, show: ({ job }) => job.nodes || "not yet", class: "wide" },
  ], { column: 5, down: false })];
}

/** How far expected starts are worked out, while the controller is at it. */
function progress({ planned, estimated, in_progress: inProgress, time: begun }) {
  if (!inProgress) return "";
  if (!begun) return " They are being worked out for the first time.";
  return ` They are being worked out anew: ${planned.toLocaleString()} are planned${estimated > 0 ? `, ${estimated.toLocaleString()} estimated` : ""} so far.`;
}

function withoutStart({ jobs, starts }) {
  // Nothing is known yet of any job.
  if (starts.in_progress && !starts.time) return [];
  const reasons = new Map();
  for (const job of jobs.filter((one) => waits(one) && !one.expected)) reasons.set(job.reason, (reasons.get(job.reason) ?? 0) + job.jobs);
  if (reasons.size === 0) return [];
  return [el("h2", {}, "Jobs without an expected start"), table("Jobs without an expected start", [...reasons], [
    { title: "Reason", value: ([reason]) => reason, show: ([reason]) => state(reason), class: "wide" },
    { title: "Jobs", value: ([, count]) => count, class: "right" },
  ], { column: 1, down: true })];
}

/** Which of the nodes have rows, and the buttons that show others. */
function pageOf(nodes, asked, link) {
  const last = Math.max(0, Math.ceil(nodes.length / NODES_OF_PAGE) - 1);
  const at = Math.min(last, Math.max(0, Number.parseInt(asked.page ?? "0", 10) || 0));
  const shown = nodes.slice(at * NODES_OF_PAGE, (at + 1) * NODES_OF_PAGE);
  if (last === 0) return [shown, []];
  const go = (to) => () => { location.hash = link({ page: String(to) }); };
  return [shown, el("div", { class: "bar paging" }, button("plan-before", "Nodes before", go(at - 1), { disabled: at === 0 }), el("span", { class: "quiet" },
    `${shown[0].name} to ${shown.at(-1).name}, ${at * NODES_OF_PAGE + 1} to ${at * NODES_OF_PAGE + shown.length} of ${nodes.length.toLocaleString()}`),
  button("plan-after", "Nodes after", go(at + 1), { disabled: at === last }))];
}

export async function plan(words) {
  const asked = Object.fromEntries(new URLSearchParams(words ?? ""));
  const [answer, known, reserved] = await Promise.all([queue({ starts: 1, limit: PLANNED_MAX, ...(asked.partition && { partition: asked.partition }) }),
    // PrivateData may hide the nodes; then partitions of jobs are shown.
    nodesInShort().catch(() => []), ask("reservations")]);
  page.inProgress = answer.starts.in_progress;
  const text = (asked.text ?? "").toLowerCase();
  const nodes = known.filter((node) => (!asked.partition || node.partitions.includes(asked.partition)) && node.name.toLowerCase().includes(text));
  const all = placed(answer.jobs, answer.now);
  const by = asked.by ?? (nodes.length > 0 && nodes.length <= NODES_AT_FIRST ? "node" : "partition");
  const span = spans.some(([name]) => name === asked.span) ? asked.span : fitting(all, answer.now, by);
  const frame = windowOf(answer.now, spans.find(([name]) => name === span)[2]);
  const width = trackWidth();
  const marks = ticks(frame, width);
  const link = (change) => planLink({ ...asked, ...change });
  const go = (change) => { location.hash = link({ page: "", ...change }); };
  const [shown, paging] = by === "node" ? pageOf(nodes, asked, link) : [nodes, []];
  const inView = asked.partition ? nodes.map((node) => ({ ...node, partitions: [asked.partition] })) : nodes;
  const rows = by === "node" ? nodeRows(frame, marks, all, shown, reserved.reservations) : partitionRows(frame, marks, all, inView, reserved.reservations, answer.partitions);
  const [running, waiting] = [all.filter((one) => one.running).length, all.filter((one) => !one.running).length];
  const partitions = [...new Set(known.flatMap((node) => node.partitions))].sort(inOrder);
  const more = answer.left_out ? ` ${plural(answer.left_out, "job")} of the queue, which come last, are not shown: choose a partition.` : "";
  return [
    el("h1", {}, "Plan"),
    el("div", { class: "bar" },
      choice("plan-by", "Rows", [["partition", "partitions"], ["node", "nodes"]], by, (value) => go({ by: value })),
      choice("plan-partition", "Partition", [["", "all"], ...partitions.map((name) => [name, name])], asked.partition ?? "", (value) => go({ partition: value })),
      choice("plan-span", "Time", spans.map(([name, title]) => [name, title]), span, (value) => go({ span: value })),
      by === "node" && search("plan-text", "Nodes", asked.text ?? "", (value) => { clearTimeout(typing); typing = setTimeout(() => go({ text: value }), 400); })),
    el("p", { class: "quiet", role: "status" }, `${plural(running, "job runs", "jobs run")}, ${plural(waiting, "has", "have")} an expected start. Expected starts assume that nobody submits anything else.${progress(answer.starts)}${more}`),
    legend([["runs", "runs"], ["plan", "expected"], ["estimate", "expected, estimated"], ["own", "yours"], ["band", "reservation"]]),
    paging,
    rows.length === 0 ? el("p", { class: "nothing" }, "There are no nodes that these choices show.")
      : roving(el("div", { class: "gantt" }, axis(frame, marks, width), el("div", { role: "list", "aria-label": "Plan; arrow keys move between jobs" }, rows))),
    startsTable(all),
    withoutStart(answer),
  ];
}

let typing;
