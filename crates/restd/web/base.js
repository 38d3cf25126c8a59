// What all pages use: requests, elements, texts of values, tables, marks of nodes. Texts of users come into the page as texts only,
// never as HTML.

const API = "/slurm/v0.0.45/";
const ROWS_MAX = 500;
/** Names that one list of nodes is read to at most. */
const NAMES_MAX = 65536;
/** How long a notice stays. */
const NOTICE_MS = 8000;

export const token = {
  get: () => sessionStorage.getItem("token"),
  set: (value) => sessionStorage.setItem("token", value),
  clear: () => sessionStorage.removeItem("token"),
};

/** What the frame of the pages knows: who looks, and how the page is made anew. */
export const page = { user: "", show: async () => {}, move: () => {}, inProgress: false };

export class NotSignedIn extends Error {}

function build(made, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "on") for (const [event, handler] of Object.entries(value)) made.addEventListener(event, handler);
    // The policy of the page allows no style attributes; properties are set one by one.
    else if (key === "style") for (const [name, text] of Object.entries(value)) made.style.setProperty(name, text);
    else if (value !== undefined && value !== false) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.flat(3).filter((child) => child !== undefined && child !== null && child !== false));
  return made;
}

/** An element with attributes and children; texts become text nodes. */
export function el(name, attributes = {}, ...children) {
  return build(document.createElement(name), attributes, children);
}

/** The same of a drawing. */
export function svg(name, attributes = {}, ...children) {
  const space = document.getElementById("drawing").namespaceURI;
  return build(document.createElementNS(space, name), attributes, children);
}

let noticeTimer;
export function say(text) {
  const notice = document.getElementById("status");
  notice.textContent = text;
  clearTimeout(noticeTimer);
  noticeTimer = setTimeout(() => { notice.textContent = ""; }, NOTICE_MS);
}

export async function ask(path, { method = "GET", body } = {}) {
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
  page.user = value.meta?.client?.user ?? "";
  document.getElementById("user").textContent = page.user;
  document.getElementById("sign-out").hidden = !token.get();
  return value;
}

/** Carries out a change, says what was done or why not, and shows what has become of it. */
export async function change(what, path, options) {
  try {
    await ask(path, options);
    say(what);
    await page.show();
  } catch (error) {
    say(error.message);
  }
}

export const number = (value) => (value?.set ? value.number : value?.infinite ? Infinity : undefined);
export const two = (value) => String(value).padStart(2, "0");
export const percent = (part) => `${Math.round(100 * part)}%`;
export const plural = (count, one, many = `${one}s`) => `${count.toLocaleString()} ${count === 1 ? one : many}`;

export function duration(seconds) {
  if (seconds === undefined || !Number.isFinite(seconds)) return "no limit";
  const whole = Math.max(0, Math.floor(seconds));
  const [days, hours, minutes] = [Math.floor(whole / 86400), Math.floor(whole / 3600) % 24, Math.floor(whole / 60) % 60];
  return `${days ? `${days}-` : ""}${two(hours)}:${two(minutes)}:${two(whole % 60)}`;
}

/** A time as Slurm's commands show it, which is the same everywhere and sorts: `2026-11-30 18:01:05`. */
export function time(value) {
  const at = typeof value === "object" ? number(value) : value;
  if (!at) return "";
  const date = new Date(at * 1000);
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${[date.getHours(), date.getMinutes(), date.getSeconds()].map(two).join(":")}`;
}

/** An hour and a minute. */
export const clock = (date) => `${two(date.getHours())}:${two(date.getMinutes())}`;

/** A time without seconds, for tables. */
export const minute = (value) => time(value).slice(0, 16);

export function size(mib) {
  if (mib >= 1024 * 1024 * 10) return `${Math.round(mib / 1024 / 1024)} TiB`;
  return mib >= 1024 * 10 ? `${Math.round(mib / 1024)} GiB` : `${mib} MiB`;
}

export function state(names) {
  const list = [names].flat();
  const first = list.includes("DRAIN") ? "drain" : list[0]?.toLowerCase();
  return el("span", { class: `state ${first}` }, list.join(" + "));
}

/** The pieces of a list of nodes: commas inside brackets do not part it. */
function pieces(text) {
  const found = [];
  let [depth, from] = [0, 0];
  for (let at = 0; at <= text.length; at += 1) {
    if (text[at] === "[") depth += 1;
    else if (text[at] === "]") depth -= 1;
    else if (at === text.length || (text[at] === "," && depth === 0)) {
      if (at > from) found.push(text.slice(from, at));
      from = at + 1;
    }
  }
  return found;
}

function expand(piece, out) {
  const open = piece.indexOf("[");
  const close = piece.indexOf("]", open);
  if (open < 0 || close < 0) {
    out.push(piece);
    return;
  }
  for (const range of piece.slice(open + 1, close).split(",")) {
    const [first, last = first] = range.split("-");
    for (let n = Number(first); n <= Number(last) && out.length < NAMES_MAX; n += 1) {
      expand(piece.slice(0, open) + String(n).padStart(first.length, "0") + piece.slice(close + 1), out);
    }
  }
}

/** The names in a list like `n[1-3,07],login`. */
export function names(text) {
  const out = [];
  for (const piece of pieces(text ?? "")) expand(piece, out);
  return out;
}

/** The nodes in short, each with what maps and sums show of it. */
export async function nodesInShort() {
  const answer = await ask("/muster/v1/nodes");
  const reasons = new Map(answer.reasons.flatMap((one) => names(one.nodes).map((name) => [name, one])));
  const nodes = answer.groups.flatMap((group) => names(group.nodes).map((name) => {
    const [of, why] = [answer.hardware[group.hardware], reasons.get(name)];
    return { name, state: group.state, cpus: of.cpus, alloc_cpus: group.used_cpus, real_memory: of.memory, alloc_memory: group.used_memory, partitions: of.partitions,
      features: of.features, gres: of.gres, reason: why?.reason ?? "", reason_since: why?.since ?? 0, reason_user: why?.user ?? "" };
  }));
  return nodes.sort((a, b) => inOrder(a.name, b.name));
}

const collator = new Intl.Collator(undefined, { numeric: true });
export const inOrder = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : collator.compare(String(a), String(b)));

/** Rows in the order in which a table has them. */
export function inTableOrder(rows, columns, sorted) {
  const by = columns[sorted.column].value;
  return [...rows].sort((a, b) => (sorted.down ? -1 : 1) * inOrder(by(a), by(b)));
}

/** A table that its heads sort. Columns: title, value to sort by, how it is shown, class. */
export function table(name, rows, columns, sorted = { column: 0, down: false }) {
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
    const order = inTableOrder(rows, columns, sorted);
    heads.forEach((head, at) => {
      if (at === sorted.column) head.setAttribute("aria-sort", sorted.down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    body.replaceChildren(...order.slice(0, ROWS_MAX).map((row) =>
      el("tr", {}, columns.map((column) => el("td", { class: column.class }, (column.show ?? column.value)(row) ?? "")))));
  }
  fill();
  const more = rows.length > ROWS_MAX && el("p", { class: "quiet" }, `The first ${ROWS_MAX} of ${rows.length.toLocaleString()} are shown.`);
  const made = el("table", {}, el("caption", { class: "skip" }, name), el("thead", {}, el("tr", {}, heads)), body);
  return [el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": name }, made), more];
}

export function card(value, what, part) {
  const meter = part !== undefined && el("div", { class: "meter", "aria-hidden": "true" }, el("span", { style: { width: percent(part) } }));
  return el("div", { class: "card" }, el("span", { class: "number" }, typeof value === "number" ? value.toLocaleString() : String(value)), el("span", { class: "what" }, what), meter);
}

/** How far something is in use, after its words. */
export function use(words, part) {
  return el("span", { class: "use-of" }, el("span", { class: "meter", "aria-hidden": "true" }, el("span", { style: { width: percent(part) } })), words);
}

/** Names and values, of which those without a value are left out. */
export function fields(pairs) {
  return el("dl", {}, pairs.filter(([, value]) => value).map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
}

/** A choice; what is chosen is given to `choose`. */
export function choice(id, title, options, chosen, choose) {
  return el("label", {}, title, el("select", { id, on: { change: (event) => choose(event.target.value) } },
    options.map(([value, text]) => el("option", { value, selected: value === chosen }, text))));
}

/** A field for a filter; what is typed is given to `fill`, which shows what it finds. */
export function search(id, title, value, fill) {
  return el("label", {}, title, el("input", { id, type: "search", value, on: { input: (event) => fill(event.target.value) } }));
}

export function button(id, text, press, more = {}) {
  return el("button", { id, type: "button", on: { click: press }, ...more }, text);
}

/** A value as a cell of CSV. What a spreadsheet would take for a formula is made a text, also behind what ends a cell where the comma does not. */
export function csvCell(value) {
  const text = String(value ?? "").replace(/(^|[;\t\r\n])( *)(?=[=+\-@＝＋－＠])/g, "$1$2'");
  return `"${text.replaceAll('"', '""')}"`;
}

/** Saves a text or a blob as a file. */
export function save(name, content, type = "text/csv") {
  const link = el("a", { href: URL.createObjectURL(new Blob([content], { type })), download: name });
  link.click();
  URL.revokeObjectURL(link.href);
}

/** Where the plan is shown with these choices. */
export function planLink(choices) {
  const made = Object.entries(choices).filter(([, value]) => value);
  return `#/plan/${encodeURIComponent(new URLSearchParams(made).toString())}`;
}

/** What a drawing's colours and marks mean. */
export function legend(entries) {
  return el("ul", { class: "legend", "aria-label": "Colours and marks" },
    entries.map(([kind, text, mark]) => el("li", {}, el("span", { class: `swatch ${kind}`, "aria-hidden": "true" }, mark ?? ""), text)));
}

/** How a node is: its colour, its mark (which says the same without the colour), and in words. */
export function health(node) {
  const has = (...wanted) => node.state.some((name) => wanted.includes(name));
  if (has("DOWN", "FAIL")) return ["wrong", "×", "down"];
  if (has("NOT_RESPONDING")) return ["wrong", "?", "does not respond"];
  if (has("DRAIN")) return ["drain", "–", "drain"];
  if (has("MAINTENANCE", "RESERVED")) return ["reserved", "R", "reserved"];
  if (has("POWERED_DOWN", "POWERING_DOWN", "POWERING_UP")) return ["asleep", "z", "power saving"];
  const base = node.state[0]?.toLowerCase() ?? "unknown";
  return [["allocated", "mixed", "idle"].includes(base) ? base : "asleep", "", base];
}

export const isWrong = (node) => ["wrong", "drain"].includes(health(node)[0]);

export const NODE_LEGEND = [["allocated", "in use"], ["mixed", "partly"], ["idle", "free"], ["reserved", "reserved", "R"],
  ["asleep", "power saving", "z"], ["drain", "drain", "–"], ["wrong", "down, ? no answer", "×"]];

/** A node as a small field, filled as far as its CPUs are in use. */
export function cell(node, isNamed, note) {
  const [kind, mark, words] = health(node);
  const use = node.cpus ? node.alloc_cpus / node.cpus : 0;
  const text = `${node.name}: ${words}, ${node.alloc_cpus} of ${node.cpus} CPUs in use${node.reason ? `, ${node.reason}` : ""}${note ? `, ${note}` : ""}`;
  return el("a", { class: `cell ${kind}${isNamed ? " named" : ""}${note ? " chosen" : ""}`, href: `#/node/${encodeURIComponent(node.name)}`,
    title: text, "aria-label": text, style: { "--use": percent(use) } }, isNamed ? `${mark && `${mark} `}${node.name}` : mark);
}

/** Cells of nodes, between which arrow keys move. */
export function cells(label, nodes, { isNamed = nodes.length <= 64, notes = new Map() } = {}) {
  return roving(el("div", { class: "cells", role: "group", "aria-label": label }, nodes.map((node) => cell(node, isNamed, notes.get(node.name)))));
}

/** What nodes have in use, in words. */
export function useOf(nodes) {
  const sum = (value) => nodes.reduce((all, node) => all + value(node), 0);
  const [cpus, used, wrong] = [sum((n) => n.cpus), sum((n) => n.alloc_cpus), nodes.filter(isWrong).length];
  return { cpus, used, wrong, part: cpus ? used / cpus : 0,
    text: `${plural(nodes.length, "node")}, ${used.toLocaleString()} of ${plural(cpus, "CPU")} in use` };
}

const middle = (box) => [(box.left + box.right) / 2, (box.top + box.bottom) / 2];

/** The link that an arrow key leads to: the next one, or the nearest above or below. */
function neighbour(links, from, key) {
  const at = links.indexOf(from);
  switch (key) {
    case "ArrowRight": return links[at + 1];
    case "ArrowLeft": return links[at - 1];
    case "Home": return links[0];
    case "End": return links.at(-1);
    case "ArrowUp": case "ArrowDown": break;
    default: return undefined;
  }
  const down = key === "ArrowDown" ? 1 : -1;
  const [x, y] = middle(from.getBoundingClientRect());
  let [best, least] = [undefined, Infinity];
  for (const link of links) {
    const [toX, toY] = middle(link.getBoundingClientRect());
    const [across, along] = [Math.abs(toX - x), down * (toY - y)];
    // The next row first, and in it what is nearest.
    const distance = along * 1000 + across;
    if (along > 4 && distance < least) [best, least] = [link, distance];
  }
  return best;
}

/** Makes one stop of the tab key of all links in an element; arrow keys move between them. */
export function roving(container) {
  const links = [...container.querySelectorAll("a")];
  links.forEach((link, at) => link.setAttribute("tabindex", at === 0 ? "0" : "-1"));
  container.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey || !links.includes(event.target)) return;
    const next = neighbour(links, event.target, event.key);
    if (!next) return;
    event.preventDefault();
    event.target.setAttribute("tabindex", "-1");
    next.setAttribute("tabindex", "0");
    next.focus();
  });
  return container;
}
