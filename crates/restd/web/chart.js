// Charts of reports: bars of rows, or columns over time in parts. They are drawings that can be saved, as SVG or as a picture.

import { duration, el, save, svg } from "./base.js";

/** Rows that have a colour or a bar of their own; of more, the largest. */
const PARTS_MAX = 7;
const BARS_MAX = 15;
/** Columns between the first and the last time at most; of more, only those that have something. */
const COLUMNS_MAX = 800;
const HEIGHT = 220;
const [LEFT, RIGHT, TOP, BOTTOM] = [60, 8, 10, 24];
const BAR = 26;
const CHAR = 7;
/** The title of a drawing, which it has where it is saved, too. */
const TITLE = 22;
const COLUMN_MAX = 64;

/** What a chart may show: values that can be added up, so that parts of a column are parts. */
export const drawn = {
  cpu: ["CPU hours", (row) => row.cpu_s / 3600], gpu: ["GPU hours", (row) => row.gpu_s / 3600], runs: ["jobs ended", (row) => row.runs],
  errors: ["ended with an error", (row) => row.runs - row.completed - row.cancelled],
};
const only = { wait: ["mean wait", (row) => row.wait_s ?? 0], mean: ["mean run time", (row) => row.mean_s ?? 0] };

const shown = (measure, value) => {
  if (only[measure]) return duration(value);
  return value.toLocaleString(undefined, { maximumFractionDigits: value < 10 ? 2 : 0 });
};

/** The measures of a chart over time, or of one with a bar for each row. */
export const measuresOf = (every) => Object.entries(every ? drawn : { ...drawn, ...only }).map(([name, [title]]) => [name, title]);

/** The least of 1, 2 and 5 times a power of ten that is not below a value. */
function round(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return power * [1, 2, 5, 10].find((factor) => factor * power >= value * 0.999999);
}

const text = (x, y, words, more = {}) => svg("text", { x, y, class: "label", ...more }, words);
const box = (x, y, width, height, kind, title) => svg("rect", { x, y, width: Math.max(0, width), height: Math.max(0, height), class: kind }, title && svg("title", {}, title));

function frame(label, width, height, content) {
  return svg("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label }, content);
}

function bars(rows, measure, nameOf, width) {
  const [title, value] = { ...drawn, ...only }[measure];
  const most = [...rows].filter((row) => value(row) > 0).sort((a, b) => value(b) - value(a)).slice(0, BARS_MAX);
  if (most.length === 0) return undefined;
  const left = Math.min(width * 0.35, 16 + CHAR * Math.max(...most.map((row) => nameOf(row).length)));
  const fits = Math.max(3, Math.floor((left - 12) / CHAR));
  const cut = (words) => (words.length > fits ? `${words.slice(0, fits - 1)}…` : words);
  const scale = (width - left - 90) / value(most[0]);
  return frame(`${title}, the most: ${most.slice(0, 5).map((row) => `${nameOf(row)} ${shown(measure, value(row))}`).join(", ")}`, width, TITLE + BAR * most.length + 8,
    [text(0, 12, title), most.map((row, at) => [text(left - 8, TITLE + at * BAR + 19, cut(nameOf(row)), { "text-anchor": "end" }),
      box(left, TITLE + at * BAR + 6, Math.max(1, value(row) * scale), BAR - 8, "part0", `${nameOf(row)}: ${shown(measure, value(row))}`),
      text(left + value(row) * scale + 6, TITLE + at * BAR + 19, shown(measure, value(row)))])]);
}

/** The months, days or hours from the first to the last: those without a row are there, too. */
function times(every, labels) {
  const first = labels[0];
  const length = { month: 7, day: 10, hour: 13 }[every];
  const [from, to] = [first, labels.at(-1)].map((label) => new Date(`${label.slice(0, length)}${{ month: "-01T00", day: "T00", hour: "" }[every]}:00:00Z`));
  const all = [];
  for (let at = from; at <= to && all.length <= COLUMNS_MAX;) {
    all.push(at.toISOString().slice(0, length));
    at = every === "month" ? new Date(Date.UTC(at.getUTCFullYear(), at.getUTCMonth() + 1, 1)) : new Date(at.getTime() + (every === "day" ? 86400e3 : 3600e3));
  }
  return all.length > COLUMNS_MAX ? [...new Set(labels.map((label) => label.slice(0, length)))] : all;
}

/** An hour as a time; days and months as they are. */
const words = (label) => (label.length === 13 ? `${label.replace("T", " ")}:00` : label);

function columns(rows, measure, every, nameOf, width) {
  const [title, value] = drawn[measure] ?? drawn.cpu;
  const labels = [...new Set(rows.filter((row) => value(row) > 0).map((row) => row[every]))].sort();
  if (labels.length === 0) return undefined;
  const all = times(every, labels);
  const place = new Map(all.map((label, at) => [label, at]));
  const sums = new Map();
  for (const row of rows) sums.set(nameOf(row), (sums.get(nameOf(row)) ?? 0) + value(row));
  const order = [...sums].filter(([, sum]) => sum > 0).sort((a, b) => b[1] - a[1]).map(([name]) => name);
  const parts = order.length > PARTS_MAX ? [...order.slice(0, PARTS_MAX - 1), "others"] : order;
  const partOf = (row) => Math.min(order.indexOf(nameOf(row)), parts.length - 1);
  const stacks = all.map(() => parts.map(() => 0));
  for (const row of rows.filter((one) => value(one) > 0)) stacks[place.get(row[every].slice(0, all[0].length))][partOf(row)] += value(row);
  const highest = round(Math.max(...stacks.map((stack) => stack.reduce((sum, part) => sum + part, 0))));
  // The names of the parts, in as many lines as they need.
  let [x, line] = [LEFT, 0];
  const legend = parts.map((name, at) => {
    const cut = name.length > 24 ? `${name.slice(0, 23)}…` : name;
    const needs = 30 + CHAR * cut.length;
    if (x + needs > width && x > LEFT) [x, line] = [LEFT, line + 1];
    const made = [box(x, TITLE + line * 18 + 2, 12, 12, `part${at}`), text(x + 17, TITLE + line * 18 + 12, cut)];
    x += needs;
    return made;
  });
  const top = TITLE + TOP + (line + 1) * 18;
  const up = (amount) => top + HEIGHT - (amount / highest) * HEIGHT;
  const step = (width - LEFT - RIGHT) / all.length;
  const each = Math.ceil((CHAR * (words(all[0]).length + 2)) / step);
  const grid = [0, 0.25, 0.5, 0.75, 1].map((part) => [box(LEFT, up(part * highest), width - LEFT - RIGHT, 1, "grid"),
    text(LEFT - 6, up(part * highest) + 4, shown(measure, part * highest), { "text-anchor": "end" })]);
  const drawnStacks = stacks.map((stack, at) => {
    let below = 0;
    return stack.map((amount, part) => {
      if (amount <= 0) return undefined;
      below += amount;
      const wide = Math.min(step * 0.8, COLUMN_MAX);
      return box(LEFT + (at + 0.5) * step - wide / 2, up(below), wide, (amount / highest) * HEIGHT, `part${part}`, `${words(all[at])}, ${parts[part]}: ${shown(measure, amount)}`);
    });
  });
  const names = all.map((label, at) => at % each === 0 && text(Math.min(LEFT + (at + 0.5) * step, width - RIGHT - (CHAR * label.length) / 2), top + HEIGHT + 18, words(label), { "text-anchor": "middle" }));
  return frame(`${title} by ${every} from ${all[0]} to ${all.at(-1)}: ${parts.join(", ")}`, width, top + HEIGHT + BOTTOM, [text(0, 12, `${title} by ${every}`), grid, drawnStacks, names, legend]);
}

/** A chart of a report; none where there is nothing to show. */
export function chart(rows, measure, every, nameOf) {
  const width = Math.max(300, document.getElementById("main").clientWidth - 34);
  return every ? columns(rows, measure, every, nameOf, width) : bars(rows, measure, nameOf, width);
}

/** The drawing without the page: colours that the page's style gives are in it. */
function standing(made) {
  const copy = made.cloneNode(true);
  const [all, copies] = [made.querySelectorAll("rect, text"), copy.querySelectorAll("rect, text")];
  all.forEach((one, at) => copies[at].setAttribute("fill", getComputedStyle(one).fill));
  copy.setAttribute("font-family", "sans-serif");
  copy.setAttribute("font-size", "12");
  const [, , width, height] = made.getAttribute("viewBox").split(" ").map(Number);
  copy.prepend(svg("rect", { width, height, fill: getComputedStyle(document.body).backgroundColor }));
  return copy;
}

export function saveDrawing(made) {
  save("report.svg", new XMLSerializer().serializeToString(standing(made)), "image/svg+xml");
}

/** Draws what the chart has, as the policy of the page loads no pictures. */
export function savePicture(made) {
  const factor = 2;
  const [, , width, height] = made.getAttribute("viewBox").split(" ").map(Number);
  const canvas = el("canvas", { width: width * factor, height: height * factor });
  const pen = canvas.getContext("2d");
  pen.scale(factor, factor);
  const of = (one, name) => Number(one.getAttribute(name) ?? 0);
  for (const one of standing(made).querySelectorAll("rect, text")) {
    pen.fillStyle = one.getAttribute("fill");
    if (one.localName === "rect") pen.fillRect(of(one, "x"), of(one, "y"), of(one, "width"), of(one, "height"));
    else {
      pen.font = "12px sans-serif";
      pen.textAlign = { end: "right", middle: "center" }[one.getAttribute("text-anchor")] ?? "left";
      pen.fillText(one.textContent, of(one, "x"), of(one, "y"));
    }
  }
  canvas.toBlob((picture) => save("report.png", picture, "image/png"), "image/png");
}
