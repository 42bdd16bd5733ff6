// The page. One stream tells the overview and the run that is looked at; it reconnects by itself and begins with the
// present state, so nothing has to be caught up. A tab that nobody looks at keeps no stream open.

import { bytes, convergence, figure, make, rankCurve, span, spectrum, times } from "/drawing.js";

const SECURE = ["advertising", "sharing", "uploading", "summing"];
const PLAIN = ["uploading", "summing"];
const SOON_DAYS = 14;
const TABLE_ROUNDS = 12;
const MOST_SITES = 40;  // of a larger cohort only those that are awaited or absent are shown at once

const at = (id) => document.getElementById(id);
let chosen = "";       // the run looked at
let stream = null;
let rounds = new Map();

function start() {
  window.addEventListener("hashchange", () => follow(wanted()));
  document.addEventListener("visibilitychange", () => (document.hidden ? stream?.close() : listen()));
  chosen = wanted();
  listen();
  setInterval(countDown, 1000);
}

function listen() {
  stream?.close();
  rounds = new Map();
  stream = new EventSource(chosen ? `/events/${encodeURIComponent(chosen)}` : "/events");
  stream.onopen = () => tellLine(true);
  stream.onerror = lost;
  stream.addEventListener("overview", (event) => showOverview(read(event.data)));
  stream.addEventListener("run", (event) => showRun(read(event.data)));
}

// Whoever chose a label or a reason cannot change how the text around it reads: signs that steer a display are shown as
// escapes, as in reports.
function read(data) {
  const steering = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g;
  const shown = (sign) => `\\u${sign.charCodeAt(0).toString(16).padStart(4, "0")}`;
  return JSON.parse(data, (_, value) => (typeof value === "string" ? value.replace(steering, shown) : value));
}

// A stream that was turned away for good is about a run that is not here (any more).
function lost() {
  tellLine(false);
  if (stream.readyState !== EventSource.CLOSED) return;
  chosen = "";
  setTimeout(listen, 1000);
}

function tellLine(live) {
  at("line").textContent = live ? "live" : "the aggregator is away; trying again";
  at("line").classList.toggle("live", live);
}

function wanted() {
  return decodeURIComponent(location.hash.replace(/^#run=/, ""));
}

function showOverview(told) {
  const us = told.aggregator;
  at("name").textContent = `${us.name} of ${us.consortium}`;
  document.title = `${us.name} · dcfpca`;
  at("about").textContent = `version ${us.version}, certificate for ${us.certificate_days} days`;
  at("about").classList.toggle("bad", us.certificate_days < SOON_DAYS);
  const known = told.runs.some((one) => one.run === wanted());
  follow(known ? wanted() : told.runs[0]?.run ?? "");
  keepingFocus(at("runs"), () => at("runs").replaceChildren(...told.runs.map(runLine)));
  const away = told.participants.filter((one) => one.state !== "connected").length;
  at("people-count").textContent = `${told.participants.length} known, ${away ? `${away} not connected` : "all connected"}`;
  at("participants").replaceChildren(...told.participants.slice().sort(byState).map(participantLine));
}

// A list that is drawn anew must not take the keyboard's place away.
function keepingFocus(list, change) {
  const href = list.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
  change();
  if (href) list.querySelector(`a[href="${CSS.escape(href)}"]`)?.focus();
}

function runLine(one) {
  const held = `${one.rounds_held} round${one.rounds_held === 1 ? "" : "s"}`;
  const place = one.status === "running" ? `round ${one.round}, ${one.phase}` : `${held} · ${moment(one.ended_ms || one.created_ms)}`;
  const refused = one.refused ? `, ${one.refused} refused` : "";
  const link = make("a", { href: `#run=${encodeURIComponent(one.run)}`, "aria-current": one.run === chosen ? "true" : null },
    make("span", { class: "title" }, make("span", {}, one.label || one.run), word(one.status)),
    make("span", { class: "soft" }, `${one.method}, ${one.sites} sites${refused} · ${place}`));
  return make("li", {}, link);
}

// Those to look after come first; the list of many scrolls.
function byState(one, other) {
  return (one.state === "connected") - (other.state === "connected") || one.name.localeCompare(other.name);
}

function participantLine(one) {
  const days = one.certificate_days;
  const seen = one.last_seen_ms ? `, last seen ${moment(one.last_seen_ms)}` : "";
  return make("tr", {},
    make("th", { scope: "row" }, one.name),
    make("td", { "data-name": "state" }, make("span", {}, word(one.state), make("span", { class: "soft" }, seen))),
    make("td", { class: days < SOON_DAYS ? "n bad" : "n", "data-name": "certificate days" }, days < 0 ? "expired" : `${days}${days < SOON_DAYS ? " – renew" : ""}`),
    make("td", { "data-name": "runs" }, one.runs.join(", ") || "–"),
    make("td", { "data-name": "software" }, one.software));
}

function follow(run) {
  if (run === chosen) return;
  chosen = run;
  for (const link of at("runs").querySelectorAll("a")) {
    if (link.getAttribute("href") === `#run=${encodeURIComponent(run)}`) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
  }
  listen();
}

function showRun(told) {
  if (told.run !== chosen) return;
  for (const one of told.rounds) rounds.set(one.round, one);
  const all = [...rounds.values()].sort((a, b) => a.round - b.round);
  at("run-title").replaceChildren(`${told.label || told.run} `, word(told.status));
  at("run-body").replaceChildren(
    ...verdict(told),
    ...(told.reason ? [make("p", { id: "reason" }, told.reason)] : []),
    make("p", { class: "soft" }, `${told.run}, proposed by ${told.operator}`),
    ...deadline(told),
    ...waiting(told),
    ...complaints(told),
    ...refusals(told),
    ...(told.status === "running" || told.status === "enrolling" ? [phases(told)] : []),
    tiles(told, all),
    ...(all.length ? [charts(told, all)] : []),
    make("h3", {}, "Sites"), sites(told),
    ...(all.length ? [folded("rounds", `the latest ${Math.min(all.length, TABLE_ROUNDS)} rounds`, roundsTable(all))] : []),
    folded("details", "details of the run", details(told)));
  countDown();
}

// Whether the answer can be trusted, and what to do: the first thing to see.
function verdict(told) {
  if (told.verdict) {
    return [
      make("p", { id: "verdict", class: told.verdict.sound ? "sound" : "doubtful" }, told.verdict.sentence),
      ...told.verdict.notes.map((note) => make("p", { class: "soft" }, note)),
      ...(told.verdict.advice ? [make("p", { id: "next" }, make("strong", {}, "Next: "), told.verdict.advice)] : [])];
  }
  const next = told.status === "paused" ? `remove the cause, then dcfpca run resume ${told.run}; or dcfpca run finish ${told.run}`
    : told.waiting.length ? `look after ${told.waiting.map((one) => one.name).join(", ")}` : "";
  return next ? [make("p", { id: "next", class: "doubtful" }, make("strong", {}, "Next: "), next)] : [];
}

function deadline(told) {
  if (!told.deadline_ms) return [];
  return [make("p", { id: "deadline", "data-at": told.deadline_ms, "data-what": told.at_deadline })];
}

function countDown() {
  const line = at("deadline");
  if (!line) return;
  const seconds = (Number(line.dataset.at) - Date.now()) / 1000;
  line.textContent = seconds > 0 ? `In ${span(Math.ceil(seconds))}: ${line.dataset.what}.` : `Due now: ${line.dataset.what}.`;
}

// What is open stays open when the page is drawn anew.
const opened = new Set();
function folded(key, summary, ...parts) {
  const box = make("details", { open: opened.has(key) ? "" : null }, make("summary", {}, summary), ...parts);
  box.addEventListener("toggle", () => (box.open ? opened.add(key) : opened.delete(key)));
  return box;
}

function details(told) {
  const pairs = [
    ["method", told.method], ["aggregation", told.aggregation],
    ["rows", told.rows], ["tolerance", told.tolerance], ["attempt", told.attempt], ["spec", told.spec_sha256],
    ...(told.privacy ? [["privacy", told.privacy]] : []),
  ];
  return make("dl", { class: "details" }, ...pairs.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, String(value))]));
}

function phases(told) {
  const names = ["enrolling", ...(told.aggregation === "plain" ? PLAIN : SECURE)];
  const items = names.map((name) => make("li", { "aria-current": name === told.phase ? "step" : null }, name));
  return make("ol", { class: "phases", "aria-label": "phases of a round" }, ...items);
}

function tiles(told, all) {
  const last = all.at(-1);
  const sum = (key) => all.reduce((total, one) => total + one[key], 0);
  const pairs = [
    ["rounds held", `${told.rounds_held} of ≤ ${told.round_limit}`],
    ["rank", last ? last.rank : "–"],
    ["last change", figure(last?.change)],
    ["noise", figure(last?.noise)],
    ["last round", last ? span(last.seconds) : "–"],
    ["from the sites", bytes(sum("received"))],
    ["to the sites", bytes(sum("sent"))],
  ];
  return make("dl", { class: "tiles" },
    ...pairs.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, String(value)))));
}

function charts(told, all) {
  const values = (all.at(-1).singular_values || []).filter((one) => one > 0);
  return make("div", { class: "charts" },
    ...(told.rank_curve.length ? [make("figure", {}, rankCurve(told.rank_curve, all.at(-1).rank), make("figcaption", {},
      "error on hidden entries by rank, with standard errors; filled: chosen; dashed: the features' medians"))] : []),
    ...(values.length ? [make("figure", {}, spectrum(values, all.at(-1).rank), make("figcaption", {},
      "singular values of the cleaned data; blue: in the low-rank part"))] : []),
    make("figure", {}, convergence(all, told.tolerance), make("figcaption", {}, "change of the subspace; dashed: tolerance")),
    make("figure", {}, times(all), make("figcaption", {}, "seconds per round; red: without somebody")));
}

function sites(told) {
  const awaited = new Set(told.awaited), absent = new Set(told.absent);
  const names = told.enrolled.map((one) => one.name);
  const everyone = [...told.enrolled, ...told.awaited.filter((name) => !names.includes(name)).map((name) => ({ name }))];
  if (!everyone.length) return make("p", { class: "empty" }, "nobody has enrolled yet");
  const notable = (one) => absent.has(one.name) || awaited.has(one.name);
  const shown = everyone.length <= MOST_SITES ? everyone : everyone.filter(notable).slice(0, MOST_SITES);
  if (shown.length < everyone.length) {
    const others = everyone.filter((one) => !shown.includes(one));
    return make("div", {}, chips(shown), folded("sites", `${others.length} ${shown.length ? "more" : "sites"}, none of them awaited`, chips(others)));
  }
  return chips(everyone);

  function chips(some) {
    return make("ul", { class: "sites" }, ...some.map(chip));
  }

  function chip(one) {
    const kind = absent.has(one.name) ? "absent" : awaited.has(one.name) ? "awaited" : "";
    const percent = told.percent[one.name] !== undefined ? ` ${told.percent[one.name]} %` : "";
    return make("li", { class: kind || null }, `${one.name}${one.private ? " (private)" : ""}${kind ? ` · ${kind}` : ""}${percent}`);
  }
}

function waiting(told) {
  if (!told.waiting.length) return [];
  const items = told.waiting.map((one) => make("li", {}, make("strong", {}, one.name),
    ` since ${moment(one.since_ms)}, ${one.connected ? "connected" : "away"}${one.said ? `; it said: “${one.said}”` : ""}`));
  return [make("h3", {}, "Waiting for"), make("ul", { id: "waiting" }, ...items)];
}

function complaints(told) {
  if (!told.complaints.length) return [];
  const items = told.complaints.map((one) => make("li", {},
    `${one.name}${one.accused ? ` about ${one.accused}` : ""}: ${one.sentence} (${moment(one.at_ms)})`));
  return [make("h3", {}, "Complaints"), make("ul", { id: "complaints" }, ...items)];
}

function refusals(told) {
  if (!told.refusals.length) return [];
  const items = told.refusals.map((one) => make("li", {}, `${one.name} (${one.what}): ${one.reasons.join("; ")}`));
  return [make("h3", {}, "Refusals"), make("ul", { id: "refusals" }, ...items)];
}

function roundsTable(all) {
  const heads = ["round", "change", "rank", "seconds", "received", "sent", "sites", "missing"];
  const rows = all.slice(-TABLE_ROUNDS).reverse().map((one) => [
    one.round, figure(one.change), one.rank, one.seconds.toFixed(2), bytes(one.received), bytes(one.sent), one.survivors,
    one.dropouts.join(", ") || "–",
  ]);
  const numeric = (place) => (place < heads.length - 1 ? "n" : null);
  const table = make("table", { id: "rounds" },
    make("thead", {}, make("tr", {}, ...heads.map((head, place) => make("th", { scope: "col", class: numeric(place) }, head)))),
    make("tbody", {}, ...rows.map((cells) => make("tr", {}, ...cells.map((cell, place) => make("td", { class: numeric(place), "data-name": heads[place] }, String(cell)))))));
  return make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "latest rounds" }, table);
}

function word(text) {
  return make("span", { class: `word ${text}` }, text);
}

function moment(milliseconds) {
  return milliseconds ? new Date(milliseconds).toLocaleString([], { dateStyle: "short", timeStyle: "short" }) : "–";
}

start();
