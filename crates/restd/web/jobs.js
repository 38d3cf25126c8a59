// The overview, the queue, and a job.

import { ask, button, card, cell, change, choice, csvCell, duration, el, fields, inTableOrder, isWrong, legend, minute, names, nodesInShort, NotSignedIn, number, page, percent, planLink, plural, roving, save, search,
  size, state, table, time, useOf } from "./base.js";

/** Nodes of a job whose cores are drawn at most. */
const DRAWN_NODES_MAX = 128;
/** Cores of a node that are drawn at most. */
const DRAWN_CORES_MAX = 512;
/** Pixels that a text in the line of a job's times needs. */
const PART_TEXT_PX = 110;
const OVER = ["COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY"];

/** Jobs that the list of jobs asks for. */
const LISTED_MAX = 2000;

/** The queue in short. */
export const queue = (parameters) => ask(`/muster/v1/queue?${new URLSearchParams(parameters)}`);

export async function overview() {
  const [counts, all, reservations] = await Promise.all([queue({ limit: 0 }), nodesInShort(), ask("reservations")]);
  const of = (name) => counts.states.find((entry) => entry.state === name)?.jobs ?? 0;
  const sum = (value) => all.reduce((total, node) => total + value(node), 0);
  const use = useOf(all);
  const [memory, usedMemory] = [sum((n) => n.real_memory), sum((n) => n.alloc_memory)];
  const wrong = all.filter(isWrong);
  const soon = reservations.reservations.filter((r) => (number(r.start_time) ?? 0) < Date.now() / 1000 + 7 * 86400);
  return [
    el("h1", {}, "Overview"),
    el("div", { class: "cards" },
      card(of("RUNNING"), "jobs run"),
      card(of("PENDING"), "jobs wait"),
      card(`${use.used.toLocaleString()} of ${use.cpus.toLocaleString()}`, "CPUs in use", use.part),
      card(size(usedMemory), `of ${size(memory)} memory in use`, memory ? usedMemory / memory : 0),
      card(all.length - wrong.length, `of ${all.length.toLocaleString()} nodes are in order`, all.length ? (all.length - wrong.length) / all.length : 0),
      card(counts.own, "of the jobs are yours")),
    el("h2", {}, "What is wrong"),
    wrong.length === 0 ? el("p", {}, "All nodes are in order.") : table("Nodes that are not in order", wrong, [
      { title: "Node", value: (n) => n.name, show: (n) => el("a", { href: `#/node/${encodeURIComponent(n.name)}` }, n.name) },
      { title: "State", value: (n) => n.state.join(), show: (n) => state(n.state) },
      { title: "Reason", value: (n) => n.reason, class: "wide" },
      { title: "Since", value: (n) => n.reason_since, show: (n) => minute(n.reason_since) },
      { title: "By", value: (n) => n.reason_user },
    ]),
    el("h2", {}, "Why jobs wait"),
    counts.reasons.length === 0 ? el("p", {}, "No job waits.") : table("Reasons", counts.reasons, [
      { title: "Reason", value: (r) => r.reason },
      { title: "Jobs", value: (r) => r.jobs, show: (r) => r.jobs.toLocaleString(), class: "right" },
      { title: "Share", value: (r) => r.jobs, class: "bar-cell", show: (r) => el("div", { class: "meter", "aria-hidden": "true" },
        el("span", { class: "waits", style: { width: percent(r.jobs / Math.max(1, of("PENDING"))) } })) },
    ], { column: 1, down: true }),
    soon.length > 0 && [el("h2", {}, "Reservations of the next seven days"), el("ul", { class: "plain" }, soon.map((r) => el("li", {},
      el("a", { href: `#/reservation/${encodeURIComponent(r.name)}` }, r.name), ` ${minute(r.start_time)} to ${minute(r.end_time)}, ${plural(r.node_count, "node")}`)))],
  ];
}

const filter = { text: "", state: "", own: false };
/** Of a queue that is longer than an answer, the server chooses. */
let isCut = false;

/** Since when a job runs, or how long it has run. */
const ran = (job) => (job.state.includes("RUNNING") ? Math.max(job.run_time, Date.now() / 1000 - job.start) : job.run_time);

/** Where a job runs, or why it waits. */
const whereOrWhy = (job) => (job.state.includes("PENDING") ? job.reason : job.nodes || job.reason);

/** The columns of a table of the queue; those that a narrow window has no room for are marked. */
export const QUEUE_COLUMNS = [
  { title: "Job", value: (j) => j.job_id, show: (j) => el("a", { href: `#/job/${j.job_id}` }, j.job) },
  { title: "Name", value: (j) => j.name, class: "cut" },
  { title: "User", value: (j) => j.user, class: "extra" },
  { title: "Account", value: (j) => j.account, class: "extra" },
  { title: "Partition", value: (j) => j.partition, class: "extra" },
  { title: "State", value: (j) => j.state.join(), show: (j) => state(j.state) },
  { title: "Time", value: ran, show: (j) => duration(ran(j)), class: "right" },
  { title: "CPUs", value: (j) => j.cpus, class: "right extra" },
  { title: "Nodes or reason", value: whereOrWhy, class: "wide" },
  { title: "Start", value: (j) => j.start, show: (j) => el("span", j.state.includes("PENDING") ? { class: "quiet", title: "expected" } : {}, minute(j.start)) },
];

/** Expected starts take a while where they are not worked out yet: until they are known, the queue is shown without. */
const starts = { known: "", asked: "" };

async function queueWithStarts(chosen, later) {
  const words = new URLSearchParams(chosen).toString();
  if (starts.known === words) return queue({ ...chosen, starts: 1 });
  const answer = await queue(chosen);
  if (starts.asked !== words) {
    starts.asked = words;
    queue({ ...chosen, starts: 1 }).then((full) => { if (!full.starts.in_progress || full.starts.time) starts.known = words; later(full); }, () => {}).finally(() => { starts.asked = ""; });
  }
  return answer;
}

/** The filter as the address has it, so that a list can be sent to somebody and is there after a reload. */
function filterOf(words) {
  const asked = new URLSearchParams(words ?? "");
  Object.assign(filter, { text: asked.get("text") ?? "", state: asked.get("state") ?? "", own: asked.has("own") });
}

function keepFilter() {
  const chosen = new URLSearchParams({ ...(filter.text && { text: filter.text }), ...(filter.state && { state: filter.state }), ...(filter.own && { own: "1" }) }).toString();
  page.move(chosen ? `#/jobs/${encodeURIComponent(chosen)}` : "#/jobs");
}

export async function jobs(words) {
  filterOf(words);
  const chosen = isCut ? { limit: LISTED_MAX, ...(filter.state && { state: filter.state }), ...(filter.own && page.user && { user: page.user }) } : { limit: LISTED_MAX };
  const list = el("div");
  const answer = await queueWithStarts(chosen, (full) => {
    if (!list.isConnected || list.contains(document.activeElement)) return;
    all = full.jobs;
    fill();
  });
  isCut = isCut || answer.left_out > 0;
  let all = answer.jobs;
  const sorted = { column: 0, down: true };
  let listed = [];
  function fill() {
    const words = filter.text.toLowerCase().split(/\s+/).filter(Boolean);
    const fits = (job) => {
      const text = [job.job, job.name, job.user, job.account, job.partition, job.nodes, job.reason, job.state.join(" ")].join(" ").toLowerCase();
      return words.every((word) => text.includes(word)) && (!filter.state || job.state.includes(filter.state)) && (!filter.own || job.user === page.user);
    };
    const shown = all.filter(fits);
    listed = shown;
    const left = answer.left_out ? `; ${plural(answer.left_out, "more is", "more are")} in the queue, of which State and Only mine find yours` : "";
    list.replaceChildren(...[el("p", { class: "quiet", role: "status" }, `${shown.length.toLocaleString()} of ${plural(all.length, "job")}${left}`),
      all.length === 0 ? el("p", { class: "nothing" }, "The queue is empty.") : table("Jobs", shown, QUEUE_COLUMNS, sorted)].flat().filter(Boolean));
  }
  const filled = () => { keepFilter(); return isCut ? page.show() : fill(); };
  fill();
  const states = [...new Set([...all.flatMap((job) => job.state), ...(filter.state ? [filter.state] : []), ...(isCut ? ["PENDING", "RUNNING"] : [])])].sort();
  return [
    el("h1", {}, "Jobs"),
    el("div", { class: "bar" },
      search("job-filter", "Filter", filter.text, (text) => { filter.text = text; keepFilter(); fill(); }),
      choice("job-state", "State", [["", "all"], ...states.map((name) => [name, name])], filter.state, (name) => { filter.state = name; filled(); }),
      button("job-own", filter.own ? "Show all" : "Only mine", (event) => {
        filter.own = !filter.own;
        event.target.setAttribute("aria-pressed", String(filter.own));
        event.target.textContent = filter.own ? "Show all" : "Only mine";
        filled();
      }, { "aria-pressed": String(filter.own) }),
      button("job-save", "Save as CSV", () => save("jobs.csv", rowsAsText(inTableOrder(listed, QUEUE_COLUMNS, sorted))))),
    list,
  ];
}

/** What the table of jobs has, as a file. */
function rowsAsText(rows) {
  const lines = rows.map((j) => [j.job, j.name, j.user, j.account, j.partition, j.state.join(" "), Math.round(ran(j)), j.cpus, whereOrWhy(j), minute(j.start)].map(csvCell).join(","));
  return ["job,name,user,account,partition,state,seconds,cpus,nodes_or_reason,start", ...lines].join("\r\n");
}

const jobName = (job) => {
  const index = number(job.array_task_id);
  if (job.array_job_id && number(job.array_job_id)) {
    return index !== undefined ? `${number(job.array_job_id)}_${index}` : `${job.job_id}_[${job.array_task_string}]`;
  }
  return String(job.job_id);
};

function runTime(job) {
  const start = number(job.start_time);
  if (!start || job.job_state.includes("PENDING")) return 0;
  const end = number(job.end_time);
  const now = Date.now() / 1000;
  const over = job.job_state.some((name) => OVER.includes(name)) && !job.job_state.includes("COMPLETING");
  return Math.max(0, (over && end ? end : now) - start);
}

/** The times of a job; of one that waits, with the start that is expected and how long it may run, once these are known. */
function timeline(job, expected) {
  const waiting = job.job_state.includes("PENDING");
  const limit = number(job.time_limit);
  const start = waiting ? expected : number(job.start_time);
  const [submitted, end] = [number(job.submit_time), waiting ? start && Number.isFinite(limit) && start + 60 * limit : number(job.end_time)];
  const now = Date.now() / 1000;
  const waits = waiting;
  const begun = start && !waits;
  const over = job.job_state.some((name) => OVER.includes(name));
  const last = Math.max(end || 0, over ? 0 : now, start || 0, submitted + 1);
  const at = (value) => 100 * Math.min(1, Math.max(0, (value - submitted) / (last - submitted)));
  const words = [`submitted ${time(submitted)}`, begun && `started ${time(start)}`, waits && start && `expected to start ${time(start)}`, end && `${over ? "ended" : "ends"} ${time(end)}`];
  const made = el("div", { id: "timeline", class: "line", role: "img", "aria-label": words.filter(Boolean).join(", ") });
  // A text that does not fit is a riddle; the label of the whole has it all.
  const least = (100 * PART_TEXT_PX) / Math.max(1, document.getElementById("main").clientWidth);
  const part = (name, from, to, text) => to > from && made.append(el("span", { class: name, title: text, style: { left: `${at(from)}%`, width: `${at(to) - at(from)}%` } },
    at(to) - at(from) > least ? text : ""));
  const begins = begun ? start : now;
  part("waited", submitted, begins, `waited ${duration(begins - submitted)}`);
  if (begun) {
    const until = over ? end : now;
    part("ran", start, Math.max(until, start + (last - submitted) / 100), `${over ? "ran" : "runs"} ${duration(runTime(job))}`);
    if (!over && end > now) part("limit", now, end, `limit in ${duration(end - now)}`);
  } else if (start > now) {
    part("waits", now, start, `expected to wait ${duration(start - now)}`);
    if (end > start) part("limit", start, end, `may run ${duration(end - start)}`);
  }
  return made;
}

/** What was answered last of a job, which is shown until the next answer. */
const explained = { id: undefined, start: undefined, parts: [] };

/** Why a job waits, who is ahead, and what would start it sooner. The scheduler plays it through, which takes a while, and the page does not wait. */
function explanation(one) {
  if (explained.id !== one.job_id) Object.assign(explained, { id: one.job_id, start: undefined, parts: [el("p", { class: "quiet" }, "The scheduler is asked when it starts …")] });
  const made = el("div", {}, explained.parts);
  ask(`/muster/v1/why/${one.job_id}`).then(({ why }) => {
    if (explained.id === one.job_id) {
      explained.start = why.expected_start?.time;
      document.getElementById("timeline")?.replaceWith(timeline(one, explained.start));
    }
    return explanationOf(why);
  }, (error) => [el("p", { class: "quiet" }, `Who is ahead of it cannot be said: ${error.message}`)])
    .then((parts) => {
      if (explained.id === one.job_id) explained.parts = parts;
      if (!made.contains(document.activeElement)) made.replaceChildren(...parts);
    });
  return made;
}

function explanationOf(why) {
  const start = why.expected_start;
  const assumed = why.assumption === "predictions" ? "if jobs run as long as predicted" : "if jobs run to their time limits";
  return [
    why.waits_for.length > 0 && el("ul", { class: "plain" }, why.waits_for.map((line) => el("li", {}, line))),
    start && el("p", {}, el("strong", {}, `Expected start: ${time(start.time)}`), start.nodes ? ` on ${start.nodes}` : "", ` in partition ${start.partition}, ${start.estimate ? "an estimate from the work ahead of it" : assumed}.`),
    why.ahead.length > 0 && [el("h2", {}, `Ahead of it: ${plural(why.ahead_count, "job")}`), table("Jobs ahead of it", why.ahead, [
      { title: "Job", value: (a) => a.job_id, show: (a) => el("a", { href: `#/job/${a.job_id}` }, String(a.job_id)) },
      { title: "Name", value: (a) => a.name, class: "cut" },
      { title: "User", value: (a) => a.user },
      { title: "CPUs", value: (a) => a.cpus, class: "right" },
      { title: "Where", value: (a) => (a.runs ? `runs${a.nodes ? ` on ${a.nodes}` : ""}` : "waits"), class: "wide" },
      { title: "Until", value: (a) => a.until ?? 0, show: (a) => minute(a.until) },
    ], { column: 5, down: false })],
    why.sooner.length > 0 && [el("h2", {}, "What would start it sooner"), el("ul", { class: "plain" }, why.sooner.map((s) => el("li", {}, el("code", {}, s.change), ` ${s.words}: ${time(s.start.time)}`)))],
    why.not_worked_out.length > 0 && [el("h2", {}, "Not worked out in the time for an answer"), el("ul", { class: "plain" }, why.not_worked_out.map((line) => el("li", {}, line)))],
  ].flat(3).filter((part) => part instanceof Node);
}

/** A node of a job: its cores in their sockets, those of the job filled. */
function drawnShare(share, node) {
  const link = { href: `#/node/${encodeURIComponent(share.name)}`, class: "allocated" };
  const text = `${plural(share.cpus.count, "CPU")}, ${size(share.memory.allocated)}`;
  const [sockets, cores] = [node?.sockets ?? 0, node?.cores ?? 0];
  const held = new Set(share.sockets.flatMap((socket) => socket.cores.map((core) => `${socket.index}.${core.index}`)));
  const isDrawn = sockets * cores > 0 && sockets * cores <= DRAWN_CORES_MAX;
  const drawing = isDrawn && el("span", { class: "sockets", role: "img", "aria-label": `${held.size} of ${sockets * cores} cores` },
    Array.from({ length: sockets }, (_, socket) => el("span", { class: "socket" },
      Array.from({ length: cores }, (_unused, core) => el("i", { class: held.has(`${socket}.${core}`) ? "core held" : "core" })))));
  return el("li", {}, el("a", link, share.name, el("small", {}, text), drawing));
}

async function drawnNodes(one) {
  const shares = one.job_resources?.nodes?.allocation ?? [];
  if (shares.length === 0) return [];
  let known = new Map();
  try {
    const list = one.job_resources.nodes.list;
    const found = shares.length <= DRAWN_NODES_MAX ? (await ask(`node/${encodeURIComponent(list)}`)).nodes : await nodesInShort();
    known = new Map(found.map((node) => [node.name, node]));
  } catch {
    // PrivateData may hide nodes from who may see the job; then they have names only.
  }
  const title = el("h2", {}, `Its ${plural(shares.length, "node")}`);
  if (shares.length > DRAWN_NODES_MAX) {
    const drawn = shares.map((share) => known.get(share.name)).filter(Boolean);
    return [title, roving(el("div", { class: "cells", role: "group", "aria-label": "Nodes of the job" }, drawn.map((node) => cell(node, false))))];
  }
  return [title, legend([["allocated", "cores of the job"], ["idle", "other cores"]]), el("ul", { class: "map" }, shares.map((share) => drawnShare(share, known.get(share.name))))];
}

/** The runs of a job in accounting; none where nothing is kept, or where it is not shown. */
async function accounted(id) {
  try {
    return (await ask(`/slurmdb/v0.0.45/job/${encodeURIComponent(id)}`)).jobs;
  } catch {
    return [];
  }
}

/** What a run that is over has used of what it had. */
function efficiency(run) {
  if (!run) return [];
  const held = (name) => run.tres.allocated.find((one) => one.type === name)?.count ?? 0;
  const [elapsed, used] = [run.time.elapsed, run.time.total.seconds + run.time.total.microseconds / 1e6];
  const core = elapsed * held("cpu");
  const most = Math.max(0, ...run.steps.map((step) => step.tres.requested.total.find((one) => one.type === "mem")?.count ?? 0)) / 1048576;
  return [
    ["CPU efficiency", core > 0 && `${percent(used / core)}: ${duration(used)} of ${duration(core)} of its CPUs`],
    ["Memory used", most > 0 && held("mem") > 0 && `${percent(most / held("mem"))}: ${size(Math.ceil(most))} of ${size(held("mem"))}`],
  ];
}

/** A job that the queue has no longer: its runs, as accounting has them. */
function past(id, all) {
  const last = all.at(-1);
  return [
    el("h1", {}, `Job ${id}: ${last.name}`),
    el("p", { class: "quiet" }, "The queue has it no longer; this is what accounting kept."),
    all.map((run) => [
      el("h2", {}, state(run.state.current)),
      fields([
        ["User", `${run.user} (account ${run.account || "none"}, QOS ${run.qos || "none"})`],
        ["Partition", run.partition],
        ["Submitted", time(run.time.submission)],
        ["Started", time(run.time.start)],
        ["Ended", time(run.time.end)],
        ["Time", duration(run.time.elapsed)],
        ["Nodes", run.nodes],
        ...efficiency(run),
        ["Exit code", `${(run.exit_code?.status ?? []).join(" ")} ${number(run.exit_code?.return_code) ?? ""}`],
      ]),
    ]),
  ];
}

function actions(one, waits) {
  const path = `job/${one.job_id}`;
  if (one.job_state.some((name) => OVER.includes(name))) return undefined;
  return el("div", { class: "bar" },
    button("job-cancel", "Cancel", () => window.confirm(`End job ${jobName(one)}?`) && change("The job was asked to end.", path, { method: "DELETE" }), { class: "danger" }),
    waits && button("job-hold", one.hold ? "Release" : "Hold", () => change(one.hold ? "The job was released." : "The job is held.", path, { method: "POST", body: { hold: !one.hold } })));
}

export async function job(id) {
  let found;
  try {
    found = (await ask(`job/${encodeURIComponent(id)}`)).jobs;
  } catch (error) {
    const runs = error instanceof NotSignedIn ? [] : await accounted(id);
    if (runs.length === 0) throw error;
    return past(id, runs);
  }
  const one = found[0];
  const waits = one.job_state.includes("PENDING");
  const over = one.job_state.some((name) => OVER.includes(name));
  const limit = number(one.time_limit);
  const [nodes, runs] = await Promise.all([drawnNodes(one), over ? accounted(one.job_id) : []]);
  const known = waits && explained.id === one.job_id ? explained.start : undefined;
  return [
    el("h1", {}, `Job ${jobName(one)}: ${one.name}`),
    el("p", {}, state(one.job_state)),
    timeline(one, known),
    waits && el("div", { class: "why" }, el("strong", {}, `It waits: ${one.state_reason}`), one.state_description && el("div", {}, one.state_description), explanation(one)),
    actions(one, waits),
    fields([
      ["User", `${one.user_name} (account ${one.account || "none"}, QOS ${one.qos || "none"})`],
      ["Partition", one.partition],
      ["Submitted", time(one.submit_time)],
      ["Started", !waits && time(one.start_time)],
      ["Ended", over && time(one.end_time)],
      ["Time", `${duration(runTime(one))} of ${limit === undefined || limit === Infinity ? "no limit" : duration(limit * 60)}`],
      ["CPUs, tasks, nodes", [number(one.cpus), number(one.tasks), number(one.node_count)].join(", ")],
      ...efficiency(runs.at(-1)),
      ["TRES", one.tres_alloc_str || one.tres_req_str],
      ["Priority", String(number(one.priority) ?? "")],
      ["Dependency", one.dependency],
      ["Reservation", one.resv_name && el("a", { href: `#/reservation/${encodeURIComponent(one.resv_name)}` }, one.resv_name)],
      ["Directory", one.current_working_directory],
      ["Command", one.command],
      ["Output", one.standard_output],
      ["Exit code", waits || one.job_state.includes("RUNNING") ? "" : `${(one.exit_code?.status ?? []).join(" ")} ${number(one.exit_code?.return_code) ?? ""}`],
      ["Comment", one.comment],
    ]),
    nodes,
    waits && el("p", {}, el("a", { href: planLink({ partition: one.partition.split(",")[0] }) }, "Its place in the plan")),
    found.length > 1 && [el("h2", {}, "Its other records"), el("ul", {}, found.slice(1).map((other) => el("li", {}, el("a", { href: `#/job/${other.job_id}` }, jobName(other)), " ", state(other.job_state))))],
  ];
}
