"use strict";
const { facts, levels } = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
const escapes = { "&": "&amp;", "<": "&lt;", ">": "&gt;" };
const escaped = (text) => text.replace(/[&<>]/g, (each) => escapes[each]);

// --- text in colours: [class, what it looks like], the first that fits ----------------------------------------------
const RULES = {
  source: [["c", /#.*/], ["s", /"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'/],
    ["k", /\b(?:def|for|in|if|else|elif|while|return|import|from|as|and|or|not|None|True|False)\b|@[\w.]+/], ["v", /\btl\.\w+/], ["d", /\b\d[\w.]*/]],
  ir: [["c", /\/\/.*/], ["s", /"(?:[^"\\]|\\.)*"/], ["v", /%[\w$.'#]+/], ["s", /[#!@^][\w.]+/],
    ["k", /\b(?:tt|ttg|ttng|scf|arith|math|sched|llvm|builtin|louver|cf|ub)\.[\w.]+/], ["d", /\b\d[\w.]*/]],
  ptx: [["c", /\/\/.*/], ["v", /%[\w.]+/], ["s", /^\w+:|@!?%\w+/], ["d", /\b(?:0[xfF][\dA-Fa-f]+|\d[\w.]*)/], ["k", /\.?\b[a-z][\w]*(?:[.:]+[\w]+)*/]],
  sass: [["c", /\/\*.*?\*\//], ["s", /^\.L\S*|`\(\S+\)|@!?U?P\w+/], ["v", /\bU?[RP]\d+[\w.]*|\b(?:U?RZ|U?PT)\b|\bSR_\w+/],
    ["d", /\b(?:0x[\da-f]+|\d[\w.]*)|\bc\[\S+\]/], ["k", /\b[A-Z][A-Z0-9]+(?:\.[\w]+)*/]],
  text: [["s", /'(?:[^'\\]|\\.)*'/], ["d", /\b\d[\w.]*/], ["v", /\b\w+(?==)/], ["k", /\b[A-Z]\w+(?=\()/]],
};
const lexers = {};
for (const [kind, rules] of Object.entries(RULES)) {
  lexers[kind] = [new RegExp(rules.map(([, rule]) => `(${rule.source})`).join("|"), "g"), rules.map(([name]) => name)];
}
function coloured(text, kind) {
  const [lexer, names] = lexers[kind];
  let out = "", end = 0;
  for (const found of text.matchAll(lexer)) {
    const name = names[found.slice(1).findIndex((each) => each !== undefined)];
    out += escaped(text.slice(end, found.index)) + `<span class="${name}">${escaped(found[0])}</span>`;
    end = found.index + found[0].length;
  }
  return out + escaped(text.slice(end));
}

// --- what is where ---------------------------------------------------------------------------------------------------
const PTX = levels.findIndex((level) => level.kind === "ptx");
for (const level of levels) {
  level.of = new Map();
  level.at.forEach((source, line) => {
    if (source < 0) return;
    if (!level.of.has(source)) level.of.set(source, []);
    level.of.get(source).push(line);
  });
  level.filled = level.lines.filter((text) => text.trim()).length;
  level.known = level.at.filter((source, line) => source >= 0 && level.lines[line].trim()).length;
}
const hue = (source) => `hsl(${(source * 137.508) % 360} 62% 55%)`;
const groups = [...new Set(levels.map((level) => level.group))];
const columns = [];
let pinned = null, near = null, active = null;

// --- columns ---------------------------------------------------------------------------------------------------------
// Columns are narrow: half of PTX's indentation, none of SASS's.
const SHOWN = { ptx: (text) => text.replace(/^(?: {4})+/, (spaces) => spaces.slice(spaces.length / 2)), sass: (text) => text.replace(/^\s+(\/\*[0-9a-f]{4,}\*\/)\s+/, "$1  ") };
class Column {
  constructor(group) {
    this.group = group;
    this.choices = levels.filter((level) => level.group === group);
    this.node = document.createElement("section");
    this.node.setAttribute("aria-label", group);
    this.node.innerHTML = `<div class="head"><select aria-label="Level"></select><span class="count"></span>` +
      `<button class="up" title="Previous linked line ([)">▲</button><button class="down" title="Next linked line (])">▼</button>` +
      `<button class="close" title="Close this column">×</button></div>` +
      `<div class="body"><div class="pane" tabindex="0" role="listbox"><div class="lines"></div></div><div class="map"></div></div>`;
    this.select = this.node.querySelector("select");
    this.pane = this.node.querySelector(".pane");
    this.map = this.node.querySelector(".map");
    this.select.innerHTML = this.choices.map((level, at) =>
      `<option value="${at}"${level.changed ? "" : " disabled"}>${escaped(level.name ? `${group}: ${level.name}` : group)}${level.changed ? "" : " (no change)"}</option>`).join("");
    this.select.disabled = this.choices.length < 2;
    this.select.onchange = () => this.show(+this.select.value);
    this.node.querySelector(".up").onclick = () => this.step(-1);
    this.node.querySelector(".down").onclick = () => this.step(1);
    this.node.querySelector(".close").onclick = () => toggle(this.group);
    this.pane.onmousemove = (event) => hover(this, lineOf(event));
    this.pane.onmouseleave = () => hover(this, null);
    this.pane.onclick = (event) => { const line = lineOf(event); if (line !== null) { this.move(line, false); pin(this, line); } };
    this.pane.onfocus = () => { active = this; };
    this.pane.onkeydown = (event) => this.key(event);
    this.map.onclick = (event) => this.reach(Math.floor((event.offsetY / this.map.clientHeight) * this.level.lines.length));
    let last = this.choices.length - 1;
    while (last > 0 && !this.choices[last].changed) last--;
    this.show(last);
  }
  show(at) {
    this.choice = at;
    this.select.value = at;
    this.select.title = this.select.selectedOptions[0].textContent;
    this.level = this.choices[at];
    this.cursor = null;
    const { level } = this, plain = SHOWN[level.kind] ?? ((text) => text);
    const digits = String(Math.max(level.lines.length, ...level.numbers)).length;
    const number = (line) => level.numbers.length ? level.numbers[line] || "" : line + 1;
    const lines = this.pane.querySelector(".lines");
    lines.style.setProperty("--digits", `${digits}ch`);
    lines.innerHTML = level.lines.map((text, line) => {
      const source = level.at[line];
      return `<div class="l${source < 0 ? "" : " known"}" role="option" id="${this.group.replace(/\W/g, "")}-${line}">` +
        `<i${source < 0 ? "" : ` style="background:${hue(source)}"`}></i><b>${number(line)}</b><code>${coloured(plain(text), level.kind)}</code></div>`;
    }).join("");
    this.nodes = lines.children;
    this.marked = [];
    this.hits = [];
    this.pane.setAttribute("aria-label", this.select.selectedOptions[0].textContent);
    draw();
    find(false);
  }
  linked(link) {
    if (link === null) return [];
    const exact = this.exactOf(link);
    return link.source < 0 ? exact : this.level.of.get(link.source) || exact;
  }
  // SASS knows its line of PTX: a finer link than that to the source.
  exactOf(link) {
    if (link.column.level === this.level) return [link.line];
    if (this.level.kind === "sass" && link.ptx !== null) return this.level.ptx.flatMap((ptx, line) => (ptx === link.ptx ? [line] : []));
    if (this.level.kind === "ptx" && link.ptx !== null) return [link.ptx - 1];
    return [];
  }
  mark() {
    for (const [line, name] of this.marked) this.nodes[line]?.classList.remove(name);
    this.marked = [];
    const add = (lines, name) => lines.forEach((line) => { this.nodes[line].classList.add(name); this.marked.push([line, name]); });
    const kept = this.linked(pinned);
    add(kept, "link");
    if (pinned) add(this.exactOf(pinned), "exact");
    add(this.linked(near), "near");
    const count = this.node.querySelector(".count");
    const share = this.level.known ? `${this.level.known.toLocaleString("en")} of ${this.level.filled.toLocaleString("en")}` : "no links";
    count.textContent = pinned ? `${kept.length} linked` : share;
    count.title = `${share} lines have a known line of the source`;
    const spot = (line, name) => `<span class="${name}" style="top:${(100 * line) / this.level.lines.length}%"></span>`;
    this.map.innerHTML = thin(kept).map((line) => spot(line, "")).join("") + thin(this.hits).map((line) => spot(line, "h")).join("");
  }
  reach(line, always = true) {
    const node = this.nodes[line];
    if (!node) return;
    const top = node.offsetTop - this.pane.scrollTop;
    if (always || top < 0 || top > this.pane.clientHeight - 34) this.pane.scrollTop = node.offsetTop - this.pane.clientHeight / 3;
  }
  move(line, scroll = true) {
    line = Math.max(0, Math.min(this.level.lines.length - 1, line));
    if (this.cursor !== null) this.nodes[this.cursor]?.classList.remove("at");
    this.cursor = line;
    this.nodes[line].classList.add("at");
    this.pane.setAttribute("aria-activedescendant", this.nodes[line].id);
    active = this;
    if (scroll) this.reach(line, false);
    say(this, line);
  }
  step(by) {
    const lines = this.linked(pinned);
    if (!lines.length) return;
    const from = this.cursor ?? -1;
    const next = by > 0 ? lines.find((line) => line > from) ?? lines[0] : lines.findLast((line) => line < from) ?? lines.at(-1);
    this.move(next, false);
    this.reach(next);
  }
  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const page = Math.floor(this.pane.clientHeight / 17) - 2, here = this.cursor ?? Math.floor(this.pane.scrollTop / 17);
    const moves = { ArrowDown: here + (this.cursor === null ? 0 : 1), ArrowUp: here - 1, PageDown: here + page, PageUp: here - page, Home: 0, End: Infinity };
    if (event.key in moves) this.move(moves[event.key]);
    else if (event.key === "Enter" && this.cursor !== null) pin(this, this.cursor);
    else if (event.key === "]") this.step(1);
    else if (event.key === "[") this.step(-1);
    else if (event.key === "." || event.key === ",") this.pass(event.key === "." ? 1 : -1);
    else return;
    event.preventDefault();
  }
  pass(by) {
    let at = this.choice + by;
    while (this.choices[at] && !this.choices[at].changed) at += by;
    if (this.choices[at]) this.show(at);
  }
}
function thin(lines) {
  const most = 400, step = Math.ceil(lines.length / most);
  return lines.filter((_, at) => at % step === 0);
}
function lineOf(event) {
  const node = event.target.closest(".l");
  return node ? +node.id.split("-").pop() : null;
}
function linkOf(column, line) {
  const { level } = column, source = level.at[line];
  const ptx = level.kind === "sass" ? level.ptx[line] : level.kind === "ptx" ? line + 1 : null;
  return source < 0 && ptx === null ? null : { column, line, source, ptx };
}
const same = (one, other) => one === other || (one && other && one.column === other.column && one.line === other.line);
function hover(column, line) {
  const link = line === null ? null : linkOf(column, line);
  if (same(link, near)) return;
  near = link;
  draw();
  if (line !== null) say(column, line);
}
function pin(column, line) {
  const link = linkOf(column, line);
  pinned = same(link, pinned) ? null : link;
  draw();
  if (!pinned) return;
  for (const other of columns) {
    if (other === column) continue;
    const exact = other.exactOf(pinned), lines = exact.length ? exact : other.linked(pinned);
    const top = other.pane.scrollTop, seen = lines.some((each) => { const at = other.nodes[each].offsetTop; return at >= top && at < top + other.pane.clientHeight - 17; });
    if (lines.length && !seen) other.reach(busiest(lines, other.pane.clientHeight / 20));
  }
}
// Where the page of so many lines begins that holds most of these.
function busiest(lines, page) {
  let best = 0, most = 0, end = 0;
  lines.forEach((line, at) => {
    while (end < lines.length && lines[end] < line + page) end++;
    if (end - at > most) [best, most] = [line, end - at];
  });
  return best;
}
function draw() { columns.forEach((column) => column.mark()); }
function say(column, line) {
  const source = column.level.at[line];
  const text = source < 0 ? "no known source" : `source line ${levels[0].numbers[source] ?? source + 1}: ${levels[0].lines[source].trim()}`;
  $("status").textContent = `${column.level.group} line ${line + 1} · ${text}`;
}

// --- search ----------------------------------------------------------------------------------------------------------
function find(go) {
  const text = $("find").value.toLowerCase();
  let total = 0;
  for (const column of columns) {
    for (const line of column.hits) column.nodes[line]?.classList.remove("hit");
    column.hits = text ? column.level.lines.flatMap((each, line) => (each.toLowerCase().includes(text) ? [line] : [])) : [];
    for (const line of column.hits) column.nodes[line].classList.add("hit");
    total += column.hits.length;
  }
  $("found").textContent = text ? `${total.toLocaleString("en")} lines found` : "";
  draw();
  if (go && text) jump(1);
}
function jump(by) {
  const column = active && active.hits.length ? active : columns.find((each) => each.hits.length);
  if (!column) return;
  const from = column.cursor ?? -1, { hits } = column;
  const next = by > 0 ? hits.find((line) => line > from) ?? hits[0] : hits.findLast((line) => line < from) ?? hits.at(-1);
  column.move(next, false);
  column.reach(next);
}

// --- the page --------------------------------------------------------------------------------------------------------
const STRIPS = 4;
function toggle(group) {
  const at = columns.findIndex((column) => column.group === group);
  if (at >= 0) columns.splice(at, 1);
  else {
    const column = new Column(group), after = columns.findIndex((each) => groups.indexOf(each.group) > groups.indexOf(group));
    columns.splice(after < 0 ? columns.length : after, 0, column);
  }
  arrange();
}
function arrange() {
  // Beyond four strips lines are too short to read: the first levels, which are short, share one.
  const first = Math.max(1, columns.length - STRIPS + 1), strips = [columns.slice(0, first), ...columns.slice(first).map((each) => [each])];
  $("columns").replaceChildren(...divided(strips.map((strip) => {
    const node = document.createElement("div");
    node.className = "strip";
    node.append(...divided(strip.map((column) => column.node), "y"));
    return node;
  }), "x"));
  $("chips").innerHTML = groups.map((group) => `<button aria-pressed="${columns.some((column) => column.group === group)}">${escaped(group)}</button>`).join("");
  [...$("chips").children].forEach((chip, at) => { chip.onclick = () => toggle(groups[at]); });
  find(false);
}
// Nodes with bars between them, which share out room along an axis as they are dragged.
function divided(nodes, axis) {
  nodes.forEach((node) => { node.style.flexGrow = 1; });
  return nodes.flatMap((node, at) => (at ? [divider(nodes[at - 1], node, axis), node] : [node]));
}
function divider(before, after, axis) {
  const bar = document.createElement("div"), place = axis === "x" ? "clientX" : "clientY", size = axis === "x" ? "offsetWidth" : "offsetHeight";
  bar.className = `bar ${axis}`;
  bar.onpointerdown = (event) => {
    const begin = event[place], own = before[size], all = own + after[size], grow = +before.style.flexGrow + +after.style.flexGrow;
    bar.setPointerCapture(event.pointerId);
    bar.onpointermove = (moved) => {
      const share = Math.max(80, Math.min(all - 80, own + moved[place] - begin)) / all;
      before.style.flexGrow = grow * share;
      after.style.flexGrow = grow * (1 - share);
    };
    bar.onpointerup = () => { bar.onpointermove = null; };
  };
  return bar;
}
function help(show = $("help").hidden) { $("help").hidden = !show; $("ask").setAttribute("aria-expanded", show); }
function wrap() {
  const on = $("columns").classList.toggle("wrapped");
  $("wrap").setAttribute("aria-pressed", on);
}
$("facts").innerHTML = facts.map(([name, value]) => `<div><dt>${escaped(name)}</dt><dd>${escaped(value)}</dd></div>`).join("");
$("wrap").onclick = wrap;
$("ask").onclick = () => help();
$("theme").onclick = () => {
  const dark = getComputedStyle(document.documentElement).colorScheme === "dark" || (!document.documentElement.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.dataset.theme = dark ? "light" : "dark";
};
$("find").oninput = () => find(false);
$("find").onkeydown = (event) => { if (event.key === "Enter") jump(event.shiftKey ? -1 : 1); };
document.onkeydown = (event) => {
  if (event.key === "Escape") {
    pinned = null;
    $("find").value = "";
    help(false);
    find(false);
    active?.pane.focus();
    return;
  }
  if (event.target.matches("input, select") || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "/") { $("find").focus(); event.preventDefault(); }
  else if (event.key === "n" || event.key === "N") jump(event.key === "n" ? 1 : -1);
  else if (event.key === "w") wrap();
  else if (event.key === "?") help();
};
// Tile IR that is the source itself would stand there twice.
const hidden = ["Facts", "Triton IR", ...(levels[0].kind === "ir" && groups.includes("Schedule IR") ? ["Tile IR"] : [])];
for (const group of groups) if (!hidden.includes(group)) columns.push(new Column(group));
arrange();
columns[0].pane.focus();
