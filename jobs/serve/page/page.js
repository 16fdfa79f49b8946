"use strict";
// The page of `tidemark serve`. What the server says enters it as text alone: nothing is parsed as HTML.
const KEPT = "tidemark-token", EVERY_MS = 10000, MOST_SHOWN = 80;
const PHIS = [0.5, 0.9, 0.99], STEPS = [60, 300, 900, 3600, 21600, 86400, 604800, 2592000];
const one = (id) => document.getElementById(id);
const state = { token: null, found: {}, asked: null, timer: null, chart: null, drawn: "" };

function make(name, text, ...children) {
  const made = document.createElement(name);
  if (text !== null && text !== undefined) made.textContent = String(text);
  made.append(...children);
  return made;
}

function shown(name) {
  // A name of data: one line, cut, with control characters and changes of direction visible.
  const plain = String(name).replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, (c) => "\\u" + c.codePointAt(0).toString(16).padStart(4, "0"));
  return plain.length > MOST_SHOWN ? plain.slice(0, MOST_SHOWN) + "…" : plain;
}

const number = (value) => (typeof value === "number" ? value.toLocaleString("en", { maximumFractionDigits: 6 }) : value ?? "");
const said = (row, name) => (row[name] === null ? row[name + "_text"] ?? "" : number(row[name]));

async function ask(path, parameters, signal) {
  const given = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters ?? {}))
    for (const each of [value].flat()) if (each !== "" && each !== null) given.append(name, each);
  const reply = await fetch(`/${path}?${given}`, { headers: { authorization: `Bearer ${state.token}` }, signal, credentials: "omit" });
  const found = await reply.json();
  if (reply.ok) return found;
  const error = new Error(found.message);
  error.status = reply.status;
  throw error;
}

function table(names, rows) {
  const head = make("tr", null, ...names.map((name) => { const cell = make("th", name); cell.scope = "col"; return cell; }));
  const body = rows.map((cells) => make("tr", null, ...cells.map((cell) => (cell instanceof Node ? make("td", null, cell) : make("td", cell)))));
  return make("table", null, make("thead", null, head), make("tbody", null, ...body));
}

function bar(row, most) {
  // The interval as a line, the value as a mark in it.
  const drawing = document.createElementNS("http://www.w3.org/2000/svg", "svg"), scale = most > 0 ? 100 / most : 0;
  drawing.setAttribute("viewBox", "0 0 104 12");
  drawing.setAttribute("width", "104");
  drawing.setAttribute("height", "12");
  drawing.setAttribute("preserveAspectRatio", "none");
  drawing.setAttribute("aria-hidden", "true");
  const add = (x, width, height) => {
    const part = document.createElementNS("http://www.w3.org/2000/svg", "rect");
    for (const [name, value] of Object.entries({ x, y: 6 - height / 2, width, height, class: "bar" })) part.setAttribute(name, value);
    drawing.append(part);
  };
  const low = Math.max(0, row.low ?? 0), high = Math.max(low, row.high ?? low);
  add(0, low * scale, 8);
  add(low * scale, (high - low) * scale, 2);
  return drawing;
}

function listed(rows, name, words) {
  const most = Math.max(0, ...rows.map((row) => row.high ?? 0));
  const cells = rows.map((row) => [shown(row[name]), said(row, "value"), row.low === row.high ? "exact" : `${said(row, "low")} to ${said(row, "high")}`, bar(row, most)]);
  return table([name, words, "certainly", ""], cells);
}

const moment = (value) => (typeof value === "string" ? value.slice(0, 16).replace("T", " ") : value ?? "");

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function moments(chart, splits, axis, space, step) {
  // Times of the axis in UTC: a date once for its day, or alone where the steps are days.
  let day = "";
  return splits.map((seconds) => {
    const at = new Date(seconds * 1000).toISOString(), date = at.slice(0, 10), isSame = date === day;
    day = date;
    if (step >= 86400) return date;
    return isSame ? at.slice(11, step < 60 ? 19 : 16) : `${at.slice(11, step < 60 ? 19 : 16)}\n${date}`;
  });
}

function draw(rows, isTime) {
  const place = one("quantiles"), times = [...new Set(rows.map((row) => row.time))].sort((a, b) => a - b);
  const at = new Map(times.map((time, i) => [time, i])), data = [times.map((time) => (isTime ? time / 1000 : time))];
  const series = [isTime ? { label: "from (UTC)", value: "{YYYY}-{MM}-{DD} {HH}:{mm}" } : { label: "step" }], bands = [];
  PHIS.forEach((phi, i) => {
    const line = colour(["--accent", "--accent2", "--accent3"][i]), columns = [[], [], []].map(() => Array(times.length).fill(null));
    for (const row of rows) if (row.phi === phi) ["value", "low", "high"].forEach((name, j) => { columns[j][at.get(row.time)] = row[name]; });
    data.push(...columns);
    const edge = { stroke: "transparent", points: { show: false }, show: true };
    series.push({ label: `p${phi * 100}`, stroke: line, width: 2, points: { show: times.length < 40 } }, { ...edge, label: "at least" }, { ...edge, label: "at most" });
    bands.push({ series: [3 * i + 3, 3 * i + 2], fill: line + "33" });
  });
  const axis = { stroke: colour("--text"), grid: { stroke: colour("--line") }, ticks: { stroke: colour("--line") } };
  const shape = JSON.stringify([isTime, times.length < 40, colour("--text")]), width = place.clientWidth, height = 320;
  if (state.chart && state.drawn === shape) {
    state.chart.setData(data);
    if (state.chart.width !== width) state.chart.setSize({ width, height });
  } else {
    state.chart?.destroy();
    place.replaceChildren();
    const options = { width, height, series, bands, padding: [null, 36, null, null], axes: [isTime ? { ...axis, space: 80, values: moments } : axis, { ...axis, size: 70 }], scales: { x: { time: isTime } }, tzDate: (s) => uPlot.tzDate(new Date(s * 1000), "Etc/UTC") };
    state.chart = new uPlot(options, data, place);
    state.drawn = shape;
  }
  place.setAttribute("role", "img");
  const last = rows.filter((row) => row.time === times.at(-1)).map((row) => `p${row.phi * 100} ${said(row, "value")}, certainly ${said(row, "low")} to ${said(row, "high")}`);
  place.setAttribute("aria-label", `Quantiles over ${times.length} windows. Last: ${last.join("; ")}.`);
}

async function panel(id, work) {
  try {
    const found = await work();
    if (found) one(id).replaceChildren(found);
  } catch (error) {
    if (error.name === "AbortError") return;
    if (error.status === 401) throw error;
    if (id === "quantiles") { state.chart?.destroy(); state.chart = null; }
    const wrong = make("p", error.message ?? "the server does not answer");
    wrong.className = "wrong";
    one(id).replaceChildren(wrong);
  }
}

async function windows(about, signal) {
  // The step of the windows: the least that makes at most a hundred of them.
  const { start, end } = await ask("span", { warehouse: about.warehouse, measure: about.measure, last: about.last }, signal);
  if (about.tick === null) return { every: Math.max(1, Math.ceil((end - start) / 100)), isTime: false };
  const seconds = (Date.parse(end ?? start) - Date.parse(start)) / 1000;
  const every = STEPS.find((step) => step >= about.tick && step % about.tick === 0 && seconds / step <= 100) ?? Math.ceil(seconds / 100 / about.tick) * about.tick;
  return { every: `${every}s`, isTime: true };
}

function facts(info, distinct, about) {
  const rows = [["Rows live", number(info.live_rows)], ["Live batches", number(info.live_batches)], ["Loads", number(info.steps)]];
  if (distinct) rows.unshift([`Distinct ${shown(about.key)}`, `${number(distinct.value)} (${distinct.least === distinct.most ? "exact" : `${number(distinct.least)} to ${number(distinct.most)}`})`]);
  if (info.span) rows.push([info.time ? "First tick (UTC)" : "First step", moment(info.span.start)], [info.time ? "Newest tick ends (UTC)" : "Last step before", moment(info.span.end)]);
  for (const [source, count] of Object.entries(info.rejected ?? {})) rows.push([`Rejected from ${shown(source)}`, number(count)]);
  return table(["", ""], rows);
}

function runs(info) {
  const found = [];
  for (const [role, own] of Object.entries({ measure: info.measures, key: info.keys, group: info.groups }))
    for (const [name, one] of Object.entries(own ?? {}))
      found.push([`${role} ${shown(name)}`, Object.entries(one.runs_by_level).map(([level, count]) => `${count} at ${level}`).join(", "), number(one.rows)]);
  return table(["of", "runs at levels", "rows"], found);
}

async function refresh() {
  state.asked?.abort();
  const asked = (state.asked = new AbortController()), signal = asked.signal, warehouse = one("warehouse").value;
  const own = state.found[warehouse], about = { warehouse, measure: one("measure").value, last: one("window").value, group: one("group").value, key: one("key").value, tick: own.tick_seconds };
  const common = { warehouse, form: "rows", last: about.last };
  const work = [
    panel("quantiles", async () => {
      const { every, isTime } = await windows(about, signal);
      const rows = await ask("quantile", { ...common, measure: about.measure, phi: PHIS, every }, signal);
      if (state.chart === null) one("quantiles").replaceChildren();
      draw(rows, isTime);
    }),
    panel("groups", async () => {
      if (!about.group) return make("p", "The warehouse has no groups.");
      const rows = await ask("quantile", { ...common, measure: about.measure, phi: 0.99, by: about.group, order: "-value", top: 10 }, signal);
      const names = about.group.split(",");
      return listed(rows.map((row) => ({ ...row, group: names.map((name) => row[`group_${name}`] ?? row[name]).join(", ") })), "group", "p99");
    }),
    panel("top", async () => {
      if (!about.key) return make("p", "The warehouse has no keys.");
      return listed(await ask("top", { ...common, key: about.key, k: 10 }, signal), "key", "rows");
    }),
    panel("now", async () => {
      const info = await ask("info", { warehouse }, signal);
      one("steps").replaceChildren(table(["batch", "rows", "step"], Object.entries(info.last_batches).reverse().map(([name, batch]) => [shown(name), number(batch.rows), batch.step])));
      one("runs").replaceChildren(runs(info));
      const distinct = about.key ? (await ask("distinct", { ...common, key: about.key }, signal))[0] : null;
      return facts(info, distinct, about);
    }),
  ];
  try {
    await Promise.all(work);
    if (!signal.aborted) one("status").textContent = `As of ${new Date().toISOString().slice(0, 19).replace("T", " ")} UTC. Looks again every ${EVERY_MS / 1000} seconds.`;
  } catch (error) {
    if (error.status === 401) leave("The token does not count any more.");
  }
}

function fill(select, values, texts) {
  const before = select.value;
  select.replaceChildren(...values.map((value, i) => { const option = make("option", shown((texts ?? values)[i])); option.value = value; return option; }));
  if (values.includes(before)) select.value = before;
}

function choose() {
  const own = state.found[one("warehouse").value];
  const columns = (keys) => keys.map((key) => key.join(","));
  fill(one("measure"), Object.keys(own.measures));
  fill(one("group"), columns(own.groups));
  fill(one("key"), columns(own.keys));
  refresh();
}

async function enter(token) {
  state.token = token;
  try {
    state.found = (await ask("warehouses")).warehouses;
  } catch (error) {
    leave(error.status === 401 ? "The token does not count." : "The server does not answer.");
    return;
  }
  sessionStorage.setItem(KEPT, token);
  one("login").hidden = true;
  one("choice").hidden = one("panels").hidden = false;
  fill(one("warehouse"), Object.keys(state.found));
  if (!Object.keys(state.found).length) { leave("The token has no rights here."); return; }
  choose();
  state.timer ??= setInterval(() => { if (!document.hidden && state.token) refresh(); }, EVERY_MS);
}

function leave(words) {
  state.asked?.abort();
  state.token = null;
  sessionStorage.removeItem(KEPT);
  one("choice").hidden = one("panels").hidden = true;
  one("login").hidden = false;
  one("status").textContent = words;
  one("token").value = "";
  one("token").focus();
}

one("login").addEventListener("submit", (event) => { event.preventDefault(); enter(one("token").value.trim()); });
one("leave").addEventListener("click", () => leave(""));
one("warehouse").addEventListener("change", choose);
for (const id of ["measure", "window", "group", "key"]) one(id).addEventListener("change", refresh);
one("choice").addEventListener("submit", (event) => event.preventDefault());
addEventListener("resize", () => { if (state.chart) state.chart.setSize({ width: one("quantiles").clientWidth, height: 320 }); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { if (state.token) refresh(); });
const kept = sessionStorage.getItem(KEPT);
if (kept) enter(kept); else leave("");
