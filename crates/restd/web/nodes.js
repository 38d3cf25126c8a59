// Nodes as a map, a node, partitions, and the network drawn.

import { ask, button, cells, change, choice, duration, el, fields, health, legend, names, NODE_LEGEND, nodesInShort, number, page, percent, planLink, plural, roving, say, search,
  size, state, table, time, use, useOf } from "./base.js";
import { queue, QUEUE_COLUMNS } from "./jobs.js";

/** Most nodes that are drawn with their names and numbers; more of them are small fields. */
const CARDS_MAX = 200;

const filter = { text: "", kind: "", by: "" };
const kinds = [["", "all"], ["idle", "free"], ["mixed", "partly in use"], ["allocated", "in use"], ["reserved", "reserved"], ["drain", "drain"], ["wrong", "down"], ["asleep", "power saving"]];

/** What nodes have in use and how many are not in order. */
function wordsOf(members) {
  const use = useOf(members);
  return `${use.text}${use.wrong ? `, ${use.wrong} not in order` : ""}`;
}

function nodeCard(node) {
  const [kind, mark, words] = health(node);
  return el("li", {}, el("a", { href: `#/node/${encodeURIComponent(node.name)}`, class: kind, title: node.reason || words },
    `${mark && `${mark} `}${node.name}`, el("small", {}, node.state.join(" + ").toLowerCase()), el("small", {}, `${node.alloc_cpus} of ${node.cpus} CPUs`),
    el("span", { class: "meter", "aria-hidden": "true" }, el("span", { style: { width: percent(node.cpus ? node.alloc_cpus / node.cpus : 0) } }))));
}

function drawn(label, nodes, all) {
  if (nodes.length === 0) return el("p", { class: "quiet" }, "No nodes.");
  if (all > CARDS_MAX) return cells(label, nodes, { isNamed: false });
  return roving(el("ul", { class: "map", "aria-label": label }, nodes.map(nodeCard)));
}

/** Nodes in groups: by switch or block, by partition, by state. */
function groups(nodes, by, topologies) {
  const known = new Map(nodes.map((node) => [node.name, node]));
  if (by === "partition") {
    const parts = [...new Set(nodes.flatMap((node) => node.partitions))].sort();
    return parts.map((name) => [name, nodes.filter((node) => node.partitions.includes(name))]);
  }
  if (by === "state") {
    const of = new Map();
    for (const node of nodes) of.set(health(node)[2], [...(of.get(health(node)[2]) ?? []), node]);
    return [...of];
  }
  if (by === "switch" && topologies.length > 0) {
    const leaves = defaultOf(topologies).switches.filter((s) => s.nodes);
    const made = leaves.map((leaf) => [leaf.name, names(leaf.nodes).map((name) => known.get(name)).filter(Boolean)]);
    const placed = new Set(made.flatMap(([, members]) => members.map((node) => node.name)));
    const others = nodes.filter((node) => !placed.has(node.name));
    return [...made, ["Other nodes", others]].filter(([, members]) => members.length > 0);
  }
  return [["", nodes]];
}

export async function nodes() {
  const [all, network] = await Promise.all([nodesInShort(), ask("/muster/v1/topology")]);
  const map = el("div");
  function fill() {
    const words = filter.text.toLowerCase().split(/\s+/).filter(Boolean);
    const fits = (node) => {
      const text = [node.name, node.state.join(" "), node.partitions.join(" "), node.features.join(" "), node.gres, node.reason].join(" ").toLowerCase();
      return words.every((word) => text.includes(word)) && (!filter.kind || health(node)[0] === filter.kind);
    };
    const shown = all.filter(fits);
    const parts = groups(shown, filter.by, network.topologies);
    map.replaceChildren(el("p", { class: "quiet", role: "status" }, wordsOf(shown)), ...parts.flatMap(([name, members]) => [
      ...(name ? [el("h2", {}, name, el("span", { class: "quiet" }, ` ${wordsOf(members)}`))] : []),
      drawn(name ? `Nodes: ${name}` : "Nodes", members, shown.length)]));
  }
  fill();
  const ways = [["", "nothing"], ["partition", "partition"], ["state", "state"], ...(network.topologies.length > 0 ? [["switch", defaultOf(network.topologies).kind === "block" ? "block" : "switch"]] : [])];
  return [
    el("h1", {}, "Nodes"),
    el("div", { class: "bar" },
      search("node-filter", "Filter", filter.text, (text) => { filter.text = text; fill(); }),
      choice("node-state", "State", kinds, filter.kind, (kind) => { filter.kind = kind; fill(); }),
      choice("node-groups", "Group by", ways, filter.by, (by) => { filter.by = by; fill(); })),
    legend(NODE_LEGEND),
    map,
  ];
}

export async function node(name) {
  const [found, running] = await Promise.all([ask(`node/${encodeURIComponent(name)}`), queue({ node: name })]);
  const one = found.nodes[0];
  const drained = one.state.includes("DRAIN") || one.state.includes("DOWN");
  const reason = el("input", { type: "text", id: "reason", maxlength: "200" });
  const path = `node/${encodeURIComponent(name)}`;
  const drain = () => {
    if (!reason.value.trim()) { say("Say why: others will ask."); return reason.focus(); }
    return change("The node takes no new jobs.", path, { method: "POST", body: { state: ["DRAIN"], reason: reason.value.trim() } });
  };
  return [
    el("h1", {}, `Node ${one.name}`),
    el("p", {}, state(one.state)),
    el("div", { class: "bar" }, drained
      ? button("node-resume", "Resume", () => change("The node takes jobs again.", path, { method: "POST", body: { state: ["RESUME"] } }))
      : [el("label", { for: "reason" }, "Why it is to take no new jobs", reason), button("node-drain", "Drain", drain)]),
    fields([
      ["CPUs", use(`${one.alloc_cpus} of ${one.cpus} in use, load ${(one.cpu_load / 100).toFixed(2)}`, one.cpus ? one.alloc_cpus / one.cpus : 0)],
      ["Memory", use(`${size(one.alloc_memory)} of ${size(one.real_memory)} given to jobs, ${size(number(one.free_mem) ?? 0)} free`, one.real_memory ? one.alloc_memory / one.real_memory : 0)],
      ["Devices", one.gres && `${one.gres_used || "none"} of ${one.gres} in use`],
      ["Features", one.features.join(", ")],
      ["Partitions", one.partitions.join(", ")],
      ["System", `${one.operating_system} ${one.architecture}`],
      ["Reason", one.reason && `${one.reason} (${one.reason_set_by_user}, ${time(one.reason_changed_at)})`],
      ["Started", time(one.boot_time)],
      ["Comment", one.comment],
    ]),
    el("h2", {}, "What runs here"),
    running.jobs.length === 0 ? el("p", {}, "No job.") : table(`Jobs on ${one.name}`, running.jobs, QUEUE_COLUMNS),
    el("p", {}, el("a", { href: planLink({ by: "node", text: one.name }) }, "What is planned here")),
  ];
}

/** How many nodes are in each condition, as one bar. */
function conditionBar(members) {
  const counts = new Map();
  for (const one of members) counts.set(health(one)[0], (counts.get(health(one)[0]) ?? 0) + 1);
  const order = ["allocated", "mixed", "idle", "reserved", "asleep", "drain", "wrong"].filter((kind) => counts.has(kind));
  const words = new Map([["allocated", "in use"], ["mixed", "partly in use"], ["idle", "free"], ["reserved", "reserved"], ["asleep", "power saving"], ["drain", "drain"], ["wrong", "down"]]);
  const text = order.map((kind) => `${counts.get(kind).toLocaleString()} ${words.get(kind)}`).join(", ");
  return [el("div", { class: "stack", "aria-hidden": "true" }, order.map((kind) => el("span", { class: kind, style: { width: percent(counts.get(kind) / members.length) } }))),
    el("p", { class: "quiet small" }, `Nodes: ${text || "none"}`)];
}

function partitionCard(partition, members, counts) {
  const use = useOf(members);
  return el("section", { class: "card", "aria-label": `Partition ${partition.name}` },
    el("h2", {}, partition.name, " ", state(partition.partition.state)),
    el("p", { class: "small" }, `${use.used.toLocaleString()} of ${plural(use.cpus, "CPU")} in use`),
    el("div", { class: "meter", "aria-hidden": "true" }, el("span", { style: { width: percent(use.part) } })),
    conditionBar(members),
    el("p", { class: "small" }, `${plural(counts?.running ?? 0, "job runs", "jobs run")}, ${plural(counts?.pending ?? 0, "waits", "wait")}. `, el("a", { href: planLink({ partition: partition.name }) }, "Plan")));
}

export async function partitions() {
  const [answer, all, counts] = await Promise.all([ask("partitions"), nodesInShort().catch(() => []), queue({ limit: 0 })]);
  const limit = (value) => (value?.infinite ? "no limit" : value?.set ? duration(value.number * 60) : "");
  return [el("h1", {}, "Partitions"),
    el("div", { class: "cards wide" }, answer.partitions.map((p) => partitionCard(p, all.filter((one) => one.partitions.includes(p.name)),
      counts.partitions.find((entry) => entry.partition === p.name)))),
    el("h2", {}, "Their limits"),
    ...table("Partitions", answer.partitions, [
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

const defaultOf = (topologies) => topologies.find((one) => one.is_default) ?? topologies[0];
let chosenNetwork = "";

/** A switch and what is below it; those that are drawn already are not drawn again, whatever the file says. */
function drawnSwitch(one, byName, known, drawnAlready) {
  if (drawnAlready.has(one.name)) return { nodes: [], made: undefined };
  drawnAlready.add(one.name);
  const below = one.switches.map((name) => byName.get(name)).filter(Boolean).map((child) => drawnSwitch(child, byName, known, drawnAlready));
  const own = names(one.nodes).map((name) => known.get(name)).filter(Boolean);
  const nodes = [...own, ...below.flatMap((child) => child.nodes)];
  return { nodes, made: branch(one.name, nodes, [own.length > 0 && cells(`Nodes at ${one.name}`, own, { isNamed: known.size <= 64 }),
    below.length > 0 && el("ul", {}, below.map((child) => child.made))]) };
}

/** What somebody has closed stays so when the page is made anew. */
const closed = new Set();

function branch(name, nodes, content) {
  const use = useOf(nodes);
  const toggle = (event) => (event.target.open ? closed.delete(name) : closed.add(name));
  return el("li", {}, el("details", { open: !closed.has(name), on: { toggle } },
    el("summary", {}, el("strong", {}, name), el("span", { class: "meter", "aria-hidden": "true" }, el("span", { style: { width: percent(use.part) } })),
      el("span", { class: "quiet" }, use.text, use.wrong > 0 && el("em", {}, `, ${use.wrong} not in order`))),
    content));
}

function drawnNetwork(network, known) {
  const byName = new Map(network.switches.map((one) => [one.name, one]));
  const below = new Set(network.switches.flatMap((one) => one.switches));
  const already = new Set();
  const roots = network.switches.filter((one) => !below.has(one.name)).map((one) => drawnSwitch(one, byName, known, already));
  const placed = new Set(roots.flatMap((root) => root.nodes.map((one) => one.name)));
  const others = [...known.values()].filter((one) => !placed.has(one.name));
  const rest = others.length > 0 && branch(network.kind === "block" ? "In no block" : "At no switch", others, cells("Other nodes", others, { isNamed: known.size <= 64 }));
  return el("ul", { class: network.kind === "block" ? "tree blocks" : "tree" }, roots.map((root) => root.made), rest);
}

function setAll(open) {
  for (const one of document.querySelectorAll("ul.tree details")) one.open = open;
}

export async function topology() {
  const [answer, all] = await Promise.all([ask("/muster/v1/topology"), nodesInShort()]);
  const known = new Map(all.map((one) => [one.name, one]));
  const networks = answer.topologies;
  const head = el("h1", {}, "Topology");
  if (networks.length === 0) {
    return [head, el("p", { class: "quiet" }, `No network is configured (topology.conf, topology.yaml), so every node is as near to every other. ${wordsOf(all)}.`),
      legend(NODE_LEGEND), cells("Nodes", all)];
  }
  const network = networks.find((one) => one.name === chosenNetwork) ?? defaultOf(networks);
  const words = { tree: plural(network.switches.length, "switch", "switches"), block: plural(network.switches.length, "block"), flat: "every node is as near to every other" };
  const sizes = network.block_sizes.length > 0 && ` Block sizes: ${network.block_sizes.join(", ")} nodes.`;
  const users = network.partitions.length > 0 && ` Used by ${network.partitions.join(", ")}${network.is_default ? " and by partitions that name none" : ""}.`;
  return [
    head,
    el("p", { class: "quiet", role: "status" }, `${words[network.kind]}; ${wordsOf(all)}.`, sizes, users, network.is_optional && " Only jobs with --switches are placed by it."),
    el("div", { class: "bar" },
      networks.length > 1 && choice("network", "Network", networks.map((one) => [one.name, one.name]), network.name, (name) => { chosenNetwork = name; page.show(); }),
      button("tree-close", "Close all", () => setAll(false)), button("tree-open", "Open all", () => setAll(true))),
    legend(NODE_LEGEND),
    drawnNetwork(network, known),
  ];
}
