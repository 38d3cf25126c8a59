// The frame of slurmrestd's pages: which page is shown, who is signed in, and the stream of changes. The pages show what the REST API
// answers to the user whose token it is.

import { el, isDenied, NotSignedIn, page, token } from "./base.js";
import { reservation, reservations } from "./calendar.js";
import { job, jobs, overview } from "./jobs.js";
import { node, nodes, partitions, topology } from "./nodes.js";
import { plan } from "./plan.js";
import { ended, reports } from "./reports.js";

const EVENTS = "/muster/v1/events";
/** How often a page asks while there is no stream of events. */
const PERIOD_MS = 15000;
/** How long after a change a page asks: others may follow at once. */
const PAUSE_MS = 300;
/** By how much the time between two questions is longer than the answer took, up to a period: a long list is not asked for without pause. */
const PAUSE_FACTOR = 20;
/** How long after a change expected starts are asked for again: those that came with it may be of before it. */
const SETTLE_MS = 10000;
/** How often expected starts are asked for though nothing changes. */
const STARTS_MS = 60000;
/** How often they are asked for while they are being worked out. */
const PROGRESS_MS = 2000;
/** Without a sign of life for this long, a stream is taken to be broken. */
const SILENCE_MS = 60000;
/** A page that was asked for is marked as being made after this time. */
const BUSY_MS = 300;
const main = document.getElementById("main");

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

const pages = { overview, jobs, job, nodes, node, partitions, reservations, reservation, topology, plan, reports, ended };
/** The page whose link is marked while one of these is shown. */
const above = { job: "jobs", node: "nodes", reservation: "reservations", ended: "reports" };
let shown = "";
let turn = 0;
/** Pages that somebody has asked for and that are being made. */
let wanted = 0;

/** Whether somebody types, or is about to press something that would not be there afterwards. */
function isInUse() {
  const at = document.activeElement;
  return main.contains(at) && at !== main && !(at instanceof HTMLButtonElement && at.id);
}

async function show(by) {
  const isWanted = by !== "clock";
  // A change does not come before what somebody has asked for.
  if (!isWanted && wanted > 0) { stream.changed(); return; }
  wanted += isWanted ? 1 : 0;
  try {
    await make(isWanted);
  } finally {
    wanted -= isWanted ? 1 : 0;
  }
}

async function make(isWanted) {
  const [, word, name] = location.hash.split("/");
  const chosen = Object.hasOwn(pages, word) ? word : "overview";
  const is = (link) => link.hash === `#/${above[chosen] ?? chosen}`;
  // A report of a year is not made anew all the time.
  if (!isWanted && ["reports", "ended"].includes(chosen) && shown === location.hash) return;
  const mine = (turn += 1);
  for (const link of document.querySelectorAll("nav a")) {
    if (is(link)) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  // An answer that takes a while is announced, unless nobody asked for it.
  const slow = isWanted && setTimeout(() => main.setAttribute("aria-busy", "true"), BUSY_MS);
  let content;
  page.inProgress = false;
  try {
    content = token.get() ? await pages[chosen](name && decodeURIComponent(name)) : signIn("");
  } catch (error) {
    content = error instanceof NotSignedIn ? signIn(error.message) : [el("h1", {}, "That cannot be shown"), el("p", { role: "alert" }, isDenied(error) ? "The site does not show this to you (PrivateData)." : error.message)];
  }
  clearTimeout(slow);
  if (mine !== turn) return;
  main.removeAttribute("aria-busy");
  if (page.inProgress) stream.again();
  const fresh = shown !== location.hash;
  if (!isWanted && !fresh && isInUse()) return;
  const focused = main.contains(document.activeElement) && document.activeElement.id;
  shown = location.hash;
  main.replaceChildren(...content.flat(4).filter((part) => part instanceof Node));
  // Who chose something in a page goes on there.
  const again = focused && document.getElementById(focused);
  if (again && !again.disabled) keepFocus(again);
  else if (fresh) { window.scrollTo(0, 0); main.focus({ preventScroll: true }); }
}

function keepFocus(field) {
  field.focus();
  if (field.type === "search") field.setSelectionRange(field.value.length, field.value.length);
}

/** Which changes a page shows. */
function concerns(kind, data) {
  const [, chosen = "overview", word] = location.hash.split("/");
  if (kind === "reset" || data.change === "reconfigured") return true;
  let name;
  try {
    name = word && decodeURIComponent(word);
  } catch {
    return false;
  }
  switch (chosen) {
    case "job": return kind === "job" && [data.job_id, data.array_job_id].map(String).includes(name?.split("_")[0]);
    case "node": return kind === "job" || (kind === "node" && data.name === name);
    case "nodes": return kind === "job" || kind === "node";
    case "jobs": return kind === "job";
    case "partitions": return kind !== "reservation";
    case "reservations": case "reservation": return kind === "reservation";
    case "topology": return kind === "job" || kind === "node";
    case "plan": return kind !== "partition";
    case "reports": case "ended": return false;
    default: return kind === "job" || kind === "node";
  }
}

const showsStarts = () => location.hash.startsWith("#/plan");

/** The stream of changes: a page is asked for anew when something that it shows has changed, and by the clock where there is no stream. */
const stream = {
  last: "",
  follows: false,
  abort: undefined,
  timer: undefined,
  settling: undefined,
  progress: undefined,
  /** When the last answer had come, and how long it took. */
  asked: { at: 0, took: 0 },

  changed() {
    if (this.timer !== undefined) return;
    const pause = Math.min(PERIOD_MS, PAUSE_FACTOR * this.asked.took);
    const wait = Math.max(PAUSE_MS, this.asked.at + pause - performance.now());
    this.timer = setTimeout(() => this.ask(), wait);
  },

  /** Asks again soon, since an answer was not complete. */
  again() {
    clearTimeout(this.progress);
    this.progress = setTimeout(() => showsStarts() && this.ask(true), PROGRESS_MS);
  },

  async ask(isSettling = false) {
    this.timer = undefined;
    clearTimeout(this.settling);
    if (!isSettling && showsStarts()) this.settling = setTimeout(() => this.ask(true), SETTLE_MS);
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

/** An address of `muster web` has a token behind the #, which is sent to no server. It leaves the address, and so the history, at once. */
function takeToken() {
  const given = /^#token=([\w.-]+)$/.exec(location.hash);
  if (!given) return;
  token.set(given[1]);
  history.replaceState(null, "", "#/overview");
}

page.show = show;
/** The address of what is shown has changed, and the page shows it already. */
page.move = (address) => {
  history.replaceState(null, "", address);
  shown = location.hash;
};
window.addEventListener("hashchange", () => { takeToken(); show(); });
document.addEventListener("visibilitychange", () => { if (!document.hidden && stream.missed) { stream.missed = false; stream.changed(); } });
document.getElementById("sign-out").addEventListener("click", () => { token.clear(); stream.stop(); document.getElementById("user").textContent = ""; document.getElementById("sign-out").hidden = true; show(); });
setInterval(() => { if (!document.hidden && token.get() && !stream.follows) show("clock"); }, PERIOD_MS);
setInterval(() => { if (!document.hidden && token.get() && showsStarts() && stream.timer === undefined) stream.ask(true); }, STARTS_MS);
takeToken();
show();
stream.run();
