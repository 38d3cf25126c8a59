// The pages of slurmrestd: they show what the REST API answers to the user whose token it is. Texts of users come into the page as
// texts only, never as HTML.

const API = "/slurm/v0.0.45/";
const EVENTS = "/muster/v1/events";
/** How often a page asks while there is no stream of events. */
const PERIOD_MS = 15000;
/** How long after a change a page asks: others may follow at once. */
const PAUSE_MS = 300;
/** By how much the time between two questions is longer than the answer took: a long list is not asked for without pause. */
const PAUSE_FACTOR = 20;
/** Without a sign of life for this long, a stream is taken to be broken. */
const SILENCE_MS = 60000;
const ROWS_MAX = 500;
const main = document.getElementById("main");
const notice = document.getElementById("status");

const token = {
  get: () => sessionStorage.getItem("token"),
  set: (value) => sessionStorage.setItem("token", value),
  clear: () => sessionStorage.removeItem("token"),
};

/** An element with attributes and children; texts become text nodes. */
function el(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "on") for (const [event, handler] of Object.entries(value)) made.addEventListener(event, handler);
    else if (value !== undefined && value !== false) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.flat().filter((child) => child !== undefined && child !== null && child !== false));
  return made;
}

let noticeTimer;
function say(text) {
  notice.textContent = text;
  clearTimeout(noticeTimer);
  noticeTimer = setTimeout(() => { notice.textContent = ""; }, 8000);
}

class NotSignedIn extends Error {}

async function ask(path, { method = "GET", body } = {}) {
  const answer = await fetch(path.startsWith("/") ? path : API + path, {
    method,
    headers: { "X-SLURM-USER-TOKEN": token.get() ?? "", ...(body ? { "Content-Type": "application/json" } : {}) },
    body: body && JSON.stringify(body),
  });
  if (answer.status === 401) {
    token.clear();
    throw new NotSignedIn(await answer.text());
  }
  const text = await answer.text();
  let value;
  try { value = JSON.parse(text); } catch { throw new Error(text || `status ${answer.status}`); }
  if (value.errors?.length) throw new Error(value.errors.map((error) => error.description || error.error).join("; "));
  if (!value.meta) return value;
  document.getElementById("cluster").textContent = value.meta?.slurm?.cluster || "Cluster";
  document.title = `${value.meta?.slurm?.cluster || "Cluster"}: ${location.hash.split("/")[1] ?? "overview"}`;
  document.getElementById("user").textContent = value.meta?.client?.user ?? "";
  document.getElementById("sign-out").hidden = !token.get();
  user = value.meta?.client?.user ?? "";
  return value;
}

let user = "";
const number = (value) => (value?.set ? value.number : value?.infinite ? Infinity : undefined);
const two = (value) => String(value).padStart(2, "0");

function duration(seconds) {
  if (seconds === undefined || !Number.isFinite(seconds)) return "no limit";
  const whole = Math.max(0, Math.floor(seconds));
  const [days, hours, minutes] = [Math.floor(whole / 86400), Math.floor(whole / 3600) % 24, Math.floor(whole / 60) % 60];
  return `${days ? `${days}-` : ""}${two(hours)}:${two(minutes)}:${two(whole % 60)}`;
}

function time(value) {
  const at = typeof value === "object" ? number(value) : value;
  return at ? new Date(at * 1000).toLocaleString() : "";
}

function size(mib) {
  return mib >= 1024 * 10 ? `${Math.round(mib / 1024)} GiB` : `${mib} MiB`;
}

function state(names) {
  const list = [names].flat();
  const first = list.includes("DRAIN") ? "drain" : list[0]?.toLowerCase();
  return el("span", { class: `state ${first}` }, list.join(" + "));
}

/** A table that its heads sort. Columns: title, value to sort by, how it is shown, class. */
function table(name, rows, columns, sorted = { column: 0, down: false }) {
  const body = el("tbody");
  const heads = columns.map((column, at) => {
    const button = el("button", { type: "button", on: { click: () => {
      sorted.down = sorted.column === at ? !sorted.down : false;
      sorted.column = at;
      fill();
    } } }, column.title);
    return el("th", { scope: "col", class: column.class }, button);
  });
  function fill() {
    const by = columns[sorted.column].value;
    const order = [...rows].sort((a, b) => {
      const [x, y] = [by(a), by(b)];
      const less = typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y), undefined, { numeric: true });
      return sorted.down ? -less : less;
    });
    heads.forEach((head, at) => {
      if (at === sorted.column) head.setAttribute("aria-sort", sorted.down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    body.replaceChildren(...order.slice(0, ROWS_MAX).map((row) =>
      el("tr", {}, columns.map((column) => el("td", { class: column.class }, (column.show ?? column.value)(row) ?? "")))));
  }
  fill();
  const more = rows.length > ROWS_MAX && el("p", { class: "quiet" }, `The first ${ROWS_MAX} of ${rows.length} are shown; the filter finds the others.`);
  const made = el("table", {}, el("caption", { class: "skip" }, name), el("thead", {}, el("tr", {}, heads)), body);
  return [el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": name }, made), more];
}

function card(value, what, part) {
  const meter = part !== undefined && el("div", { class: "meter", "aria-hidden": "true" }, el("span"));
  if (meter) meter.firstChild.style.width = `${Math.round(100 * part)}%`;
  return el("div", { class: "card" }, el("span", { class: "number" }, String(value)), el("span", { class: "what" }, what), meter);
}

const jobName = (job) => {
  const index = number(job.array_task_id);
  if (job.array_job_id && number(job.array_job_id)) {
    return index !== undefined ? `${number(job.array_job_id)}_${index}` : `${job.job_id}_[${job.array_task_string}]`;
  }
  return String(job.job_id);
};
const ran = (job) => {
  const start = number(job.start_time);
  if (!start || job.job_state.includes("PENDING")) return 0;
  const end = number(job.end_time);
  const now = Date.now() / 1000;
  const over = !job.job_state.some((name) => ["RUNNING", "SUSPENDED", "COMPLETING"].includes(name));
  return Math.max(0, (over && end ? end : now) - start);
};

const isWrong = (node) => node.state.some((name) => ["DOWN", "DRAIN", "FAIL", "NOT_RESPONDING"].includes(name));

async function overview() {
  const [jobs, nodes] = await Promise.all([ask("jobs"), ask("nodes")]);
  const of = (name) => jobs.jobs.filter((job) => job.job_state.includes(name)).length;
  const sum = (value) => nodes.nodes.reduce((all, node) => all + value(node), 0);
  const [cpus, used] = [sum((n) => n.cpus), sum((n) => n.alloc_cpus)];
  const [memory, usedMemory] = [sum((n) => n.real_memory), sum((n) => n.alloc_memory)];
  const wrong = nodes.nodes.filter(isWrong);
  const reasons = new Map();
  for (const job of jobs.jobs.filter((job) => job.job_state.includes("PENDING"))) {
    reasons.set(job.state_reason, (reasons.get(job.state_reason) ?? 0) + 1);
  }
  return [
    el("h1", {}, "Overview"),
    el("div", { class: "cards" },
      card(of("RUNNING"), "jobs run"),
      card(of("PENDING"), "jobs wait"),
      card(`${used} of ${cpus}`, "CPUs in use", cpus ? used / cpus : 0),
      card(`${size(usedMemory)}`, `of ${size(memory)} memory in use`, memory ? usedMemory / memory : 0),
      card(nodes.nodes.length - wrong.length, `of ${nodes.nodes.length} nodes are in order`),
      card(jobs.jobs.filter((job) => job.user_name === user && !job.job_state.some((s) => ["COMPLETED", "FAILED", "CANCELLED", "TIMEOUT"].includes(s))).length, "of the jobs are yours")),
    el("h2", {}, "What is wrong"),
    wrong.length === 0 ? el("p", {}, "All nodes are in order.") : table("Nodes that are not in order", wrong, [
      { title: "Node", value: (n) => n.name, show: (n) => el("a", { href: `#/node/${encodeURIComponent(n.name)}` }, n.name) },
      { title: "State", value: (n) => n.state.join(), show: (n) => state(n.state) },
      { title: "Reason", value: (n) => n.reason, class: "wide" },
      { title: "Since", value: (n) => number(n.reason_changed_at) ?? 0, show: (n) => time(n.reason_changed_at) },
      { title: "By", value: (n) => n.reason_set_by_user },
    ]),
    el("h2", {}, "Why jobs wait"),
    reasons.size === 0 ? el("p", {}, "No job waits.") : table("Reasons", [...reasons], [
      { title: "Reason", value: ([reason]) => reason },
      { title: "Jobs", value: ([, count]) => count, class: "right" },
    ], { column: 1, down: true }),
  ];
}

const filter = { text: "", state: "", own: false };

async function jobs() {
  const all = (await ask("jobs")).jobs;
  const list = el("div");
  const columns = [
    { title: "Job", value: (j) => j.job_id, show: (j) => el("a", { href: `#/job/${j.job_id}` }, jobName(j)) },
    { title: "Name", value: (j) => j.name },
    { title: "User", value: (j) => j.user_name },
    { title: "Account", value: (j) => j.account },
    { title: "Partition", value: (j) => j.partition },
    { title: "State", value: (j) => j.job_state.join(), show: (j) => state(j.job_state) },
    { title: "Time", value: ran, show: (j) => duration(ran(j)), class: "right" },
    { title: "CPUs", value: (j) => number(j.cpus) ?? 0, class: "right" },
    { title: "Nodes or reason", value: (j) => j.nodes || j.state_reason, class: "wide" },
    { title: "Start", value: (j) => number(j.start_time) ?? 0, show: (j) => time(j.start_time) },
  ];
  const sorted = { column: 0, down: true };
  function fill() {
    const words = filter.text.toLowerCase().split(/\s+/).filter(Boolean);
    const fits = (job) => {
      const text = [jobName(job), job.name, job.user_name, job.account, job.partition, job.nodes, job.state_reason, job.job_state.join(" ")].join(" ").toLowerCase();
      return words.every((word) => text.includes(word)) && (!filter.state || job.job_state.includes(filter.state)) && (!filter.own || job.user_name === user);
    };
    const shown = all.filter(fits);
    list.replaceChildren(...[el("p", { class: "quiet", role: "status" }, `${shown.length} of ${all.length} jobs`), table("Jobs", shown, columns, sorted)].flat().filter(Boolean));
  }
  fill();
  const states = [...new Set(all.flatMap((job) => job.job_state))].sort();
  return [
    el("h1", {}, "Jobs"),
    el("div", { class: "bar" },
      el("label", {}, "Filter", el("input", { type: "search", value: filter.text, on: { input: (e) => { filter.text = e.target.value; fill(); } } })),
      el("label", {}, "State", el("select", { on: { change: (e) => { filter.state = e.target.value; fill(); } } },
        el("option", { value: "" }, "all"), states.map((name) => el("option", { value: name, selected: filter.state === name }, name)))),
      el("button", { type: "button", "aria-pressed": String(filter.own), on: { click: (e) => {
        filter.own = !filter.own;
        e.target.setAttribute("aria-pressed", String(filter.own));
        e.target.textContent = filter.own ? "Show all" : "Only mine";
        fill();
      } } }, filter.own ? "Show all" : "Only mine"),
      el("button", { type: "button", on: { click: () => save("jobs.csv", all) } }, "Save as CSV")),
    list,
  ];
}

/** What the table of jobs has, as a file. */
function save(name, rows) {
  download(name, rowsAsText(rows));
}

function download(name, text) {
  const link = el("a", { href: URL.createObjectURL(new Blob([text], { type: "text/csv" })), download: name });
  link.click();
  URL.revokeObjectURL(link.href);
}

function rowsAsText(rows) {
  const cell = (value) => {
    let text = String(value ?? "");
    // A spreadsheet would take these as formulas.
    if (/^[=+\-@\t\r]/.test(text)) text = `'${text}`;
    return `"${text.replaceAll('"', '""')}"`;
  };
  const lines = rows.map((j) => [jobName(j), j.name, j.user_name, j.account, j.partition, j.job_state.join(" "), Math.round(ran(j)), number(j.cpus), j.nodes, j.state_reason].map(cell).join(","));
  return ["job,name,user,account,partition,state,seconds,cpus,nodes,reason", ...lines].join("\r\n");
}

async function change(what, path, options) {
  try {
    await ask(path, options);
    say(what);
    await show();
  } catch (error) {
    say(error.message);
  }
}

function timeline(job) {
  const [submitted, start, end] = [number(job.submit_time), number(job.start_time), number(job.end_time)];
  const now = Date.now() / 1000;
  const begun = start && !job.job_state.includes("PENDING");
  const last = Math.max(end || 0, now, begun ? start : 0, submitted + 1);
  const at = (value) => `${(100 * (value - submitted)) / (last - submitted)}%`;
  const made = el("div", { class: "line", role: "img", "aria-label": `submitted ${time(submitted)}${begun ? `, started ${time(start)}` : ""}${end ? `, ends ${time(end)}` : ""}` });
  const part = (name, from, to, text) => {
    const span = el("span", { class: name }, text);
    span.style.left = at(from);
    span.style.width = `calc(${at(to)} - ${at(from)})`;
    made.append(span);
  };
  part("waited", submitted, begun ? start : now, `waited ${duration((begun ? start : now) - submitted)}`);
  if (begun) part("ran", start, Math.min(last, end || now), `ran ${duration(ran(job))}`);
  return made;
}

async function job(id) {
  const found = (await ask(`job/${encodeURIComponent(id)}`)).jobs;
  const one = found[0];
  const waits = one.job_state.includes("PENDING");
  const limit = number(one.time_limit);
  const fields = [
    ["User", `${one.user_name} (account ${one.account || "none"}, QOS ${one.qos || "none"})`],
    ["Partition", one.partition],
    ["Submitted", time(one.submit_time)],
    [waits ? "Expected start" : "Started", time(one.start_time)],
    ["Time", `${duration(ran(one))} of ${limit === undefined || limit === Infinity ? "no limit" : duration(limit * 60)}`],
    ["CPUs, tasks, nodes", [number(one.cpus), number(one.tasks), number(one.node_count)].join(", ")],
    ["TRES", one.tres_alloc_str || one.tres_req_str],
    ["Priority", String(number(one.priority) ?? "")],
    ["Dependency", one.dependency],
    ["Directory", one.current_working_directory],
    ["Command", one.command],
    ["Output", one.standard_output],
    ["Exit code", waits || one.job_state.includes("RUNNING") ? "" : `${(one.exit_code?.status ?? []).join(" ")} ${number(one.exit_code?.return_code) ?? ""}`],
    ["Comment", one.comment],
  ];
  const nodes = (one.job_resources?.nodes?.allocation ?? []).map((share) => el("li", {}, el("a", { href: `#/node/${encodeURIComponent(share.name)}`, class: "allocated" },
    share.name, el("small", {}, `${share.cpus.count} CPUs, ${size(share.memory.allocated)}`))));
  const sure = (text) => window.confirm(text);
  return [
    el("h1", {}, `Job ${jobName(one)}: ${one.name}`),
    el("p", {}, state(one.job_state)),
    waits && el("div", { class: "why" }, el("strong", {}, `It waits: ${one.state_reason}`), one.state_description && el("div", {}, one.state_description)),
    timeline(one),
    el("div", { class: "bar" },
      el("button", { type: "button", class: "danger", on: { click: () => sure(`End job ${jobName(one)}?`) && change("The job was asked to end.", `job/${one.job_id}`, { method: "DELETE" }) } }, "Cancel"),
      waits && el("button", { type: "button", on: { click: () => change(one.hold ? "The job was released." : "The job is held.", `job/${one.job_id}`, { method: "POST", body: { hold: !one.hold } }) } }, one.hold ? "Release" : "Hold")),
    el("dl", {}, fields.filter(([, value]) => value).flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)])),
    nodes.length > 0 && [el("h2", {}, "Nodes"), el("ul", { class: "map" }, nodes)],
    found.length > 1 && [el("h2", {}, "Its other records"), el("ul", {}, found.slice(1).map((other) => el("li", {}, el("a", { href: `#/job/${other.job_id}` }, jobName(other)), " ", state(other.job_state))))],
  ];
}

const nodeClass = (node) => {
  if (node.state.some((name) => ["DOWN", "FAIL", "NOT_RESPONDING"].includes(name))) return "wrong";
  if (node.state.includes("DRAIN")) return "drain";
  return node.state[0].toLowerCase();
};

async function nodes() {
  const all = (await ask("nodes")).nodes;
  return [
    el("h1", {}, "Nodes"),
    el("ul", { class: "map" }, all.map((node) => el("li", {}, el("a", { href: `#/node/${encodeURIComponent(node.name)}`, class: nodeClass(node) },
      node.name, el("small", {}, node.state.join(" + ").toLowerCase()), el("small", {}, `${node.alloc_cpus} of ${node.cpus} CPUs`))))),
  ];
}

async function node(name) {
  const one = (await ask(`node/${encodeURIComponent(name)}`)).nodes[0];
  const drained = one.state.includes("DRAIN") || one.state.includes("DOWN");
  const reason = el("input", { type: "text", id: "reason", maxlength: "200" });
  const fields = [
    ["CPUs", `${one.alloc_cpus} of ${one.cpus} in use, load ${(one.cpu_load / 100).toFixed(2)}`],
    ["Memory", `${size(one.alloc_memory)} of ${size(one.real_memory)} given to jobs, ${size(number(one.free_mem) ?? 0)} free`],
    ["Devices", one.gres && `${one.gres_used || "none"} of ${one.gres} in use`],
    ["Features", one.features.join(", ")],
    ["Partitions", one.partitions.join(", ")],
    ["System", `${one.operating_system} ${one.architecture}`],
    ["Reason", one.reason && `${one.reason} (${one.reason_set_by_user}, ${time(one.reason_changed_at)})`],
    ["Started", time(one.boot_time)],
    ["Comment", one.comment],
  ];
  return [
    el("h1", {}, `Node ${one.name}`),
    el("p", {}, state(one.state)),
    el("div", { class: "bar" }, drained
      ? el("button", { type: "button", on: { click: () => change("The node takes jobs again.", `node/${encodeURIComponent(name)}`, { method: "POST", body: { state: ["RESUME"] } }) } }, "Resume")
      : [el("label", { for: "reason" }, "Why it is to take no new jobs", reason),
        el("button", { type: "button", on: { click: () => {
          if (!reason.value.trim()) { say("Say why: others will ask."); return reason.focus(); }
          return change("The node takes no new jobs.", `node/${encodeURIComponent(name)}`, { method: "POST", body: { state: ["DRAIN"], reason: reason.value.trim() } });
        } } }, "Drain")]),
    el("dl", {}, fields.filter(([, value]) => value).flatMap(([title, value]) => [el("dt", {}, title), el("dd", {}, value)])),
  ];
}

async function partitions() {
  const all = (await ask("partitions")).partitions;
  const limit = (value) => (value?.infinite ? "no limit" : value?.set ? duration(value.number * 60) : "");
  return [el("h1", {}, "Partitions"), ...table("Partitions", all, [
    { title: "Name", value: (p) => p.name },
    { title: "State", value: (p) => p.partition.state.join() },
    { title: "Nodes", value: (p) => p.nodes.total, class: "right" },
    { title: "CPUs", value: (p) => p.cpus.total, class: "right" },
    { title: "Longest job", value: (p) => number(p.maximums.time) ?? Infinity, show: (p) => limit(p.maximums.time), class: "right" },
    { title: "Default time", value: (p) => number(p.defaults.time) ?? 0, show: (p) => limit(p.defaults.time), class: "right" },
    { title: "Priority", value: (p) => p.priority.tier, class: "right" },
    { title: "Names of nodes", value: (p) => p.nodes.configured, class: "wide" },
  ])];
}

async function reservations() {
  const all = (await ask("reservations")).reservations;
  return [el("h1", {}, "Reservations"), ...(all.length === 0 ? [el("p", {}, "There are none.")] : table("Reservations", all, [
    { title: "Name", value: (r) => r.name },
    { title: "From", value: (r) => number(r.start_time) ?? 0, show: (r) => time(r.start_time) },
    { title: "Until", value: (r) => number(r.end_time) ?? 0, show: (r) => time(r.end_time) },
    { title: "Nodes", value: (r) => r.node_list, class: "wide" },
    { title: "Users", value: (r) => r.users },
    { title: "Accounts", value: (r) => r.accounts },
    { title: "Flags", value: (r) => r.flags.join(", "), class: "wide" },
  ]))];
}

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

/** From when to when a month, day or hour of a report is. */
function within(every, label) {
  if (every === "hour") return { starttime: label.slice(0, 16), endtime: `${label.slice(0, 14)}59` };
  if (every === "day") return { starttime: label, endtime: `${label}T23:59:59` };
  const [year, month] = label.split("-").map(Number);
  return { starttime: `${label}-01`, endtime: month === 12 ? `${year + 1}-01-01` : `${year}-${two(month + 1)}-01` };
}

async function reports(words) {
  const asked = Object.fromEntries(new URLSearchParams(words ?? ""));
  const by = dimensions[asked.by] ? asked.by : "user";
  const query = new URLSearchParams({ ...asked, by });
  const found = await ask(`/muster/v1/report?${query}`);
  const link = (change) => {
    const next = Object.entries({ ...asked, by, ...change }).filter(([, value]) => value);
    return `#/reports/${encodeURIComponent(new URLSearchParams(next).toString())}`;
  };
  const go = (change) => { location.hash = link(change); };
  const most = Math.max(1, ...found.rows.map((row) => row.cpu_s));
  const [option, next] = dimensions[by];
  const keys = [];
  if (asked.every) {
    keys.push({ title: asked.every, value: (row) => row[asked.every], show: (row) => el("a", { href: link({ every: finer[asked.every], ...within(asked.every, row[asked.every]) }) }, row[asked.every]) });
  }
  keys.push({ title: by, value: (row) => row[by], show: (row) => (option ? el("a", { href: link({ by: next, [option]: row[by] }) }, row[by] || "(none)") : row[by]) });
  const columns = [...keys, ...measures.map(([name, title, kind]) => ({ title, class: "right", value: (row) => row[name] ?? -1, show: (row) => measured(row[name], kind) })),
    { title: "Share of the most", value: (row) => row.cpu_s, show: (row) => {
      const meter = el("div", { class: "meter", "aria-hidden": "true" }, el("span"));
      meter.firstChild.style.width = `${(100 * row.cpu_s) / most}%`;
      return meter;
    } }];
  const choice = (title, name, options, chosen) => el("label", {}, title, el("select", { on: { change: (e) => go({ [name]: e.target.value }) } },
    options.map(([value, text]) => el("option", { value, selected: value === chosen }, text))));
  const day = (title, name) => el("label", {}, title, el("input", { type: "date", value: (asked[name] ?? "").slice(0, 10), on: { change: (e) => go({ [name]: e.target.value }) } }));
  const conditions = Object.values(dimensions).map(([name]) => name).filter((name) => name && asked[name]);
  return [
    el("h1", {}, "Reports"),
    el("div", { class: "bar" },
      choice("A row for each", "by", Object.keys(dimensions).map((name) => [name, name === "nodes" ? "number of nodes" : name]), by),
      choice("and each", "every", [["", "—"], ["month", "month"], ["day", "day"], ["hour", "hour"]], asked.every ?? ""),
      day("From", "starttime"), day("Until", "endtime"),
      el("button", { type: "button", on: { click: async () => {
        const answer = await fetch(`/muster/v1/report?${query}&format=csv&columns=all`, { headers: { "X-SLURM-USER-TOKEN": token.get() ?? "" } });
        if (answer.ok) download("report.csv", await answer.text());
        else say(await answer.text());
      } } }, "Save as CSV"),
      conditions.map((name) => el("button", { type: "button", on: { click: () => go({ [name]: "" }) } }, `${name}=${asked[name]} ×`))),
    el("div", { class: "cards" }, card(found.total.runs, "jobs ended"), card(measured(found.total.cpu_s, "hours"), "CPU hours"),
      card(measured(found.total.gpu_s, "hours"), "GPU hours"), card(measured(found.total.mean_s, "time") || "–", "mean run time"),
      card(found.total.runs - found.total.completed - found.total.cancelled, "ended with an error"), card(measured(found.total.wait_s, "time") || "–", "mean wait")),
    el("p", { class: "quiet" }, `${time(found.start)} to ${time(found.end)}. A job counts where it ended, and what it used where it used it.`),
    ...table("Report", found.rows, columns, { column: asked.every ? 0 : keys.length + 12, down: !asked.every }),
  ];
}

function signIn(why) {
  const field = el("textarea", { id: "token", rows: "4", required: true, autocomplete: "off", spellcheck: "false" });
  return [
    el("h1", {}, "Sign in"),
    why && el("p", { role: "alert" }, why),
    el("form", { class: "sign-in", on: { submit: (event) => {
      event.preventDefault();
      token.set(field.value.trim().replace(/^SLURM_JWT=/, ""));
      show();
    } } },
      el("label", { for: "token" }, "A token of yours: run ", el("code", {}, "scontrol token lifespan=28800"), " on a login host and paste what it prints. It stays in this tab, and goes with it."),
      field,
      el("button", { type: "submit" }, "Sign in")),
  ];
}

const pages = { overview, jobs, job, nodes, node, partitions, reservations, reports };
let shown = "";
let turn = 0;

async function show(by) {
  const mine = (turn += 1);
  const [, page = "overview", name] = location.hash.split("/");
  const is = (link) => link.getAttribute("href") === `#/${page}` || (page === "job" && link.hash === "#/jobs") || (page === "node" && link.hash === "#/nodes");
  // A report of a year is not made anew all the time.
  if (by === "clock" && page === "reports") return;
  for (const link of document.querySelectorAll("nav a")) {
    if (is(link)) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  let content;
  try {
    content = token.get() ? await (pages[page] ?? overview)(name && decodeURIComponent(name)) : signIn("");
  } catch (error) {
    content = error instanceof NotSignedIn ? signIn(error.message) : [el("h1", {}, "That cannot be shown"), el("p", { role: "alert" }, error.message)];
  }
  if (mine !== turn) return;
  const fresh = shown !== location.hash;
  // What somebody types or is about to press is not taken from under the hands.
  if (by === "clock" && main.contains(document.activeElement) && document.activeElement !== main) return;
  shown = location.hash;
  main.replaceChildren(...content.flat(3).filter((part) => part instanceof Node));
  if (fresh) main.focus({ preventScroll: false });
}

/** Which changes a page shows. */
function concerns(kind, data) {
  const [, page = "overview", word] = location.hash.split("/");
  if (kind === "reset" || data.change === "reconfigured") return true;
  let name;
  try {
    name = word && decodeURIComponent(word);
  } catch {
    return false;
  }
  switch (page) {
    case "job": return kind === "job" && [data.job_id, data.array_job_id].map(String).includes(name?.split("_")[0]);
    case "node": return kind === "job" || (kind === "node" && data.name === name);
    case "nodes": return kind === "job" || kind === "node";
    case "jobs": return kind === "job";
    case "partitions": return kind === "partition" || kind === "node";
    case "reservations": return kind === "reservation";
    case "reports": return false;
    default: return kind === "job" || kind === "node";
  }
}

/** The stream of changes: a page is asked for anew when something that it shows has changed, and by the clock where there is no stream. */
const stream = {
  last: "",
  follows: false,
  abort: undefined,
  timer: undefined,
  /** When the last answer had come, and how long it took. */
  asked: { at: 0, took: 0 },

  changed() {
    if (this.timer !== undefined) return;
    const wait = Math.max(PAUSE_MS, this.asked.at + PAUSE_FACTOR * this.asked.took - performance.now());
    this.timer = setTimeout(() => this.ask(), wait);
  },

  async ask() {
    this.timer = undefined;
    // What changes while nobody looks is asked for when somebody does.
    if (document.hidden) { this.missed = true; return; }
    const began = performance.now();
    await show("clock");
    const now = performance.now();
    this.asked = { at: now, took: now - began };
  },

  take(text) {
    const event = { data: "{}" };
    for (const line of text.split("\n")) {
      const at = line.indexOf(": ");
      if (at > 0) event[line.slice(0, at)] = line.slice(at + 2);
    }
    if (event.id) this.last = event.id;
    if (!event.event) return;
    if (event.event === "ready") { this.follows = true; this.changed(); return; }
    if (concerns(event.event, JSON.parse(event.data))) this.changed();
  },

  async follow() {
    const headers = { "X-SLURM-USER-TOKEN": token.get(), ...(this.last ? { "Last-Event-ID": this.last } : {}) };
    this.abort = new AbortController();
    let silence = setTimeout(() => this.abort.abort(), SILENCE_MS);
    try {
      const answer = await fetch(EVENTS, { headers, signal: this.abort.signal });
      if (!answer.ok) return;
      if (this.last) this.follows = true;
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      for (let text = ""; ;) {
        const { value, done } = await reader.read();
        if (done) return;
        clearTimeout(silence);
        silence = setTimeout(() => this.abort.abort(), SILENCE_MS);
        const events = (text + value).split("\n\n");
        text = events.pop();
        events.forEach((event) => this.take(event));
      }
    } catch {
      // The server or the way to it is gone for now.
    } finally {
      clearTimeout(silence);
      this.follows = false;
    }
  },

  async run() {
    for (;;) {
      if (token.get()) await this.follow();
      await new Promise((resolve) => { setTimeout(resolve, 2000); });
    }
  },

  stop() {
    this.last = "";
    this.abort?.abort();
  },
};

window.addEventListener("hashchange", show);
document.addEventListener("visibilitychange", () => { if (!document.hidden && stream.missed) { stream.missed = false; stream.changed(); } });
document.getElementById("sign-out").addEventListener("click", () => { token.clear(); stream.stop(); document.getElementById("user").textContent = ""; document.getElementById("sign-out").hidden = true; show(); });
setInterval(() => { if (!document.hidden && token.get() && !stream.follows) show("clock"); }, PERIOD_MS);
show();
stream.run();
