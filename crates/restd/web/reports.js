// Reports of what was used, by user, account, application and so on, with a way down from a month to its hours.

import { ask, button, card, choice, duration, el, minute, number, percent, save, say, state, table, token, two } from "./base.js";
import { chart, measuresOf, saveDrawing, savePicture } from "./chart.js";

/** Jobs of a row of a report that are shown as a list at most. */
const JOBS_MAX = 2000;
/** Columns that are left out where no row has anything in them. */
const RARE = ["failed", "timeout", "out_of_memory", "node_failed", "cancelled", "gpu_s"];
/** Choices of a report, as accounting calls them. An application is known to reports alone. */
const inAccounting = { uid: "users", accounts: "account", partition: "partition", qos: "qos", nodelist: "node" };

/** What reports have rows for: the option that chooses one of them, and what comes next below it. */
const dimensions = {
  user: ["uid", "application"], account: ["accounts", "user"], application: ["application", "user"], partition: ["partition", "user"],
  qos: ["qos", "user"], node: ["nodelist", "application"], state: [null, "user"], nodes: [null, "application"],
};
const finer = { month: "day", day: "hour", hour: "" };
const measures = [
  ["runs", "Runs", "count"], ["completed", "OK", "count"], ["failed", "Failed", "count"], ["timeout", "Timeout", "count"], ["out_of_memory", "Memory", "count"],
  ["node_failed", "Node", "count"], ["cancelled", "Cancelled", "count"], ["mean_s", "Mean", "time"], ["median_s", "Median", "time"],
  ["p95_s", "95 %", "time"], ["longest_s", "Longest", "time"], ["wait_s", "Mean wait", "time"], ["cpu_s", "CPU hours", "hours"],
  ["gpu_s", "GPU hours", "hours"], ["cpu_efficiency", "CPU efficiency", "share"],
];

/** A value of a report, as it is shown. */
function measured(value, kind) {
  if (value === null || value === undefined) return "";
  if (kind === "time") return duration(value);
  if (kind === "hours") return (value / 3600).toFixed(2);
  if (kind === "share") return `${Math.round(100 * value)} %`;
  return String(value);
}

/** What comes so many hours after the beginning of an hour, as the server writes times, whatever the zone of the browser. */
const hoursAfter = (hour, count) => new Date(Date.parse(`${hour}:00Z`) + count * 3600_000).toISOString();

/** From when to when a month, day or hour of a report is: the end is the beginning of the next. */
export function within(every, label) {
  if (every === "hour") return { starttime: label.slice(0, 16), endtime: hoursAfter(label.slice(0, 13), 1).slice(0, 16) };
  if (every === "day") return { starttime: label, endtime: hoursAfter(`${label}T00`, 24).slice(0, 10) };
  const [year, month] = label.split("-").map(Number);
  return { starttime: `${label}-01`, endtime: month === 12 ? `${year + 1}-01-01` : `${year}-${two(month + 1)}-01` };
}

const titled = (word) => word[0].toUpperCase() + word.slice(1);

export async function reports(words) {
  const asked = Object.fromEntries(new URLSearchParams(words ?? ""));
  const by = dimensions[asked.by] ? asked.by : "user";
  const { draw, ...passed } = asked;
  const query = new URLSearchParams({ ...passed, by });
  // A report does not say whose it is and of which cluster.
  const [found, kept, shares] = await Promise.all([ask(`/muster/v1/report?${query}`), ask("/muster/v1/storage"), ask("shares").catch(() => undefined), ask("ping")]);
  const link = (change) => {
    const next = Object.entries({ ...asked, by, ...change }).filter(([, value]) => value);
    return `#/reports/${encodeURIComponent(new URLSearchParams(next).toString())}`;
  };
  const go = (change) => { location.hash = link(change); };
  const most = Math.max(1, ...found.rows.map((row) => row.cpu_s));
  const [option, next] = dimensions[by];
  const keys = [];
  if (asked.every) {
    keys.push({ title: titled(asked.every), value: (row) => row[asked.every], show: (row) => el("a", { href: link({ every: finer[asked.every], ...within(asked.every, row[asked.every]) }) }, row[asked.every].slice(0, 16).replace("T", " ")) });
  }
  keys.push({ title: titled(by), value: (row) => row[by], show: (row) => (option ? el("a", { href: link({ by: next, [option]: row[by] }) }, row[by] || "(none)") : row[by]) });
  const filled = (name) => !RARE.includes(name) || found.rows.some((row) => row[name]);
  const jobsOf = (row) => {
    const period = asked.every ? within(asked.every, row[asked.every]) : {};
    const chosen = { ...asked, ...(option ? { [option]: row[by] } : {}), ...period, every: "", by: "", draw: "" };
    const isListed = option && !chosen.application && row.runs > 0 && row.runs <= JOBS_MAX && (row[by] || option !== "uid");
    const words = Object.entries(chosen).filter(([, value]) => value);
    return isListed ? el("a", { href: `#/ended/${encodeURIComponent(new URLSearchParams(words).toString())}` }, String(row.runs)) : String(row.runs);
  };
  const measure = (name) => (name === "runs" ? jobsOf : undefined);
  const shownMeasures = measures.filter(([name]) => filled(name));
  const columns = [...keys, ...shownMeasures.map(([name, title, kind]) => ({ title, class: "right", value: (row) => row[name] ?? -1, show: measure(name) ?? ((row) => measured(row[name], kind)) })),
    { title: "Share of the most", value: (row) => row.cpu_s, class: "bar-cell", show: (row) => el("div", { class: "meter", "aria-hidden": "true" },
      el("span", { style: { width: percent(row.cpu_s / most) } })) }];
  const byCpu = keys.length + shownMeasures.findIndex(([name]) => name === "cpu_s");
  const ways = measuresOf(asked.every);
  const way = ways.some(([name]) => name === draw) ? draw : "cpu";
  const picture = chart(found.rows, way, asked.every, (row) => String(row[by] || "(none)"));
  const choose = (title, name, options, chosen) => choice(`report-${name}`, title, options, chosen, (value) => go({ [name]: value }));
  const day = (title, name) => el("label", {}, title, el("input", { id: `report-${name}`, type: "date", value: (asked[name] ?? "").slice(0, 10), on: { change: (e) => go({ [name]: e.target.value }) } }));
  const conditions = Object.values(dimensions).map(([name]) => name).filter((name) => name && asked[name]);
  return [
    el("h1", {}, "Reports"),
    el("div", { class: "bar" },
      choose("A row for each", "by", Object.keys(dimensions).map((name) => [name, name === "nodes" ? "number of nodes" : name]), by),
      choose("and each", "every", [["", "—"], ["month", "month"], ["day", "day"], ["hour", "hour"]], asked.every ?? ""),
      day("From", "starttime"), day("Until", "endtime"),
      el("button", { type: "button", on: { click: async () => {
        const answer = await fetch(`/muster/v1/report?${query}&format=csv&columns=all`, { headers: { "X-SLURM-USER-TOKEN": token.get() ?? "" } });
        if (answer.ok) save("report.csv", await answer.text());
        else say(await answer.text());
      } } }, "Save as CSV"),
      conditions.map((name) => el("button", { type: "button", on: { click: () => go({ [name]: "" }) } }, `${name}=${asked[name]} ×`))),
    el("div", { class: "cards" }, card(found.total.runs, "jobs ended"), card(measured(found.total.cpu_s, "hours"), "CPU hours"),
      card(measured(found.total.gpu_s, "hours"), "GPU hours"), card(measured(found.total.mean_s, "time") || "–", "mean run time"),
      card(found.total.runs - found.total.completed - found.total.cancelled, "ended with an error"), card(measured(found.total.wait_s, "time") || "–", "mean wait")),
    el("p", { class: "quiet" }, `${minute(found.start)} to ${minute(found.end)}. A job counts where it ended, and what it used where it used it.`),
    picture && el("section", { class: "drawing", "aria-label": "Chart" },
      el("div", { class: "bar" }, choose("Chart of", "draw", ways, way),
        button("report-svg", "Save as SVG", () => saveDrawing(picture)), button("report-png", "Save as PNG", () => savePicture(picture))),
      picture),
    found.rows.length === 0 ? el("p", { class: "nothing" }, "No job of these used anything in this time.")
      : table("Report", found.rows, columns, { column: asked.every ? 0 : byCpu, down: !asked.every }),
    ...fairShare(shares),
    ...storage(kept.storage),
  ];
}

/** The jobs of a row of a report: those that ended in its time. */
export async function ended(words) {
  const asked = Object.fromEntries(new URLSearchParams(words ?? ""));
  const conditions = Object.entries(inAccounting).filter(([name]) => asked[name]);
  // What a report takes as a time is what accounting takes.
  const found = await ask(`/muster/v1/report?${new URLSearchParams({ ...asked, by: "user" })}`);
  const query = new URLSearchParams({ skip_steps: "0", start_time: found.start, end_time: found.end + 1, ...Object.fromEntries(conditions.map(([name, of]) => [of, asked[name]])) });
  const answer = found.total.runs > JOBS_MAX ? { jobs: [] } : await ask(`/slurmdb/v0.0.45/jobs?${query}`);
  const isIn = (job) => job.time.end > 0 && job.time.end >= found.start && job.time.end < found.end;
  const shown = answer.jobs.filter(isIn);
  const idOf = (job) => (job.array?.job_id && number(job.array.task_id) !== undefined ? `${job.array.job_id}_${number(job.array.task_id)}` : String(job.job_id));
  const held = (job, name) => job.tres.allocated.find((one) => one.type === name)?.count ?? 0;
  return [
    el("h1", {}, "Jobs that ended"),
    el("p", { class: "quiet", role: "status" }, `${minute(found.start)} to ${minute(found.end)}${conditions.map(([name]) => `, ${name}=${asked[name]}`).join("")}: `
      + (found.total.runs > JOBS_MAX ? `${found.total.runs.toLocaleString()} jobs, which are too many for a list.` : `${shown.length.toLocaleString()} of ${found.total.runs.toLocaleString()} runs.`)),
    shown.length > 0 && table("Jobs that ended", shown, [
      { title: "Job", value: (job) => job.job_id, show: (job) => el("a", { href: `#/job/${job.job_id}` }, idOf(job)) },
      { title: "Name", value: (job) => job.name, class: "cut" },
      { title: "User", value: (job) => job.user, class: "extra" },
      { title: "Account", value: (job) => job.account, class: "extra" },
      { title: "Partition", value: (job) => job.partition, class: "extra" },
      { title: "State", value: (job) => job.state.current.join(), show: (job) => state(job.state.current) },
      { title: "Time", value: (job) => job.time.elapsed, show: (job) => duration(job.time.elapsed), class: "right" },
      { title: "CPUs", value: (job) => held(job, "cpu"), class: "right extra" },
      { title: "CPU hours", value: (job) => held(job, "cpu") * job.time.elapsed, show: (job) => (held(job, "cpu") * job.time.elapsed / 3600).toFixed(2), class: "right" },
      { title: "Nodes", value: (job) => job.nodes, class: "wide" },
      { title: "Ended", value: (job) => job.time.end, show: (job) => minute(job.time.end) },
    ], { column: 10, down: true }),
  ];
}

/** What users were promised and what they have had of it; nothing where accounting has no users, or hides them. */
function fairShare(answer) {
  const users = (answer?.shares?.shares ?? []).filter((share) => share.type.includes("USER") && share.fairshare.factor.set);
  if (users.length === 0) return [];
  const part = (value) => `${(100 * (number(value) ?? 0)).toFixed(1)} %`;
  return [
    el("h2", {}, "Fair share"),
    ...table("Fair share of users", users, [
      { title: "User", value: (share) => share.name },
      { title: "Account", value: (share) => share.parent },
      { title: "Share", class: "right", value: (share) => number(share.shares_normalized) ?? 0, show: (share) => part(share.shares_normalized) },
      { title: "Use", class: "right", value: (share) => number(share.effective_usage) ?? 0, show: (share) => part(share.effective_usage) },
      { title: "Factor", class: "right", value: (share) => number(share.fairshare.factor) ?? 0, show: (share) => (number(share.fairshare.factor) ?? 0).toFixed(3) },
      { title: "Priority by it", value: (share) => number(share.fairshare.factor) ?? 0, class: "bar-cell", show: (share) => el("div", { class: "meter", "aria-hidden": "true" },
        el("span", { style: { width: percent(Math.min(1, number(share.fairshare.factor) ?? 0)) } })) },
    ], { column: 4, down: true }),
  ];
}

/** Bytes with a unit of 1024s. */
function bytes(count) {
  let [value, unit] = [count, 0];
  while (value >= 1024 && unit < 5) [value, unit] = [value / 1024, unit + 1];
  return `${unit ? value.toFixed(1) : value} ${["B", "KiB", "MiB", "GiB", "TiB", "PiB"][unit]}`;
}

/** What users have on file systems; nothing where no scan was recorded. */
function storage(kept) {
  return kept.filesystems.flatMap((filesystem) => {
    const most = Math.max(1, ...filesystem.users.map((user) => user.bytes));
    const growth = (user) => (user.bytes_before === null ? null : user.bytes - user.bytes_before);
    const grown = (value) => (value === null ? "" : `${value < 0 ? "−" : "+"}${bytes(Math.abs(value))}`);
    return [
      el("h2", {}, `Storage: ${filesystem.name}`),
      el("p", { class: "quiet" }, `${filesystem.path}, ${minute(filesystem.time)}: ${bytes(filesystem.used_bytes)} of ${bytes(filesystem.size_bytes)} in use.`
        + (filesystem.since === null ? "" : ` Growth since ${minute(filesystem.since)}.`) + (kept.own_only ? " Only your own is shown." : "")),
      ...table(`What users have on ${filesystem.name}`, filesystem.users, [
        { title: "User", value: (user) => user.user },
        { title: "Size", class: "right", value: (user) => user.bytes, show: (user) => bytes(user.bytes) },
        { title: "Files", class: "right", value: (user) => user.files, show: (user) => user.files.toLocaleString() },
        { title: "Growth", class: "right", value: (user) => growth(user) ?? -Infinity, show: (user) => grown(growth(user)) },
        { title: "Share of the most", value: (user) => user.bytes, class: "bar-cell", show: (user) => el("div", { class: "meter", "aria-hidden": "true" },
          el("span", { style: { width: percent(user.bytes / most) } })) },
      ], { column: 1, down: true }),
    ];
  });
}
