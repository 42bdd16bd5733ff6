// Elements and charts. Texts are always set as text, never as markup: names and reasons are written by others.

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 420, HEIGHT = 190, LEFT = 46, RIGHT = 8, TOP = 10, BOTTOM = 24;

export function make(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function draw(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== null && value !== false) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

export function bytes(count) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let place = 0;
  while (count >= 1000 && place < units.length - 1) { count /= 1000; place += 1; }
  return `${place ? count.toFixed(1) : count} ${units[place]}`;
}

export function figure(value) {
  if (value === null || value === undefined) return "–";
  return value && Math.abs(value) < 1e-3 ? value.toExponential(1) : Number(value).toPrecision(2);
}

export function span(seconds) {
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  const minutes = Math.round(seconds / 60);
  return minutes < 60 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

// Change of the subspace by round, in powers of ten; the tolerance as a dashed line.
export function convergence(rounds, tolerance) {
  const points = rounds.filter((one) => one.change > 0);
  const known = points.map((one) => one.change).concat(tolerance > 0 ? [tolerance] : []);
  const low = Math.floor(Math.log10(Math.min(...known, 1))), high = Math.ceil(Math.log10(Math.max(...known, 0.1)));
  const y = (value) => TOP + (HEIGHT - TOP - BOTTOM) * (high - Math.log10(value)) / Math.max(high - low, 1);
  const x = across(rounds, false);
  const parts = [];
  const step = Math.max(1, Math.ceil((high - low) / 4));
  for (let power = low; power <= high; power += step) parts.push(...level(y(10 ** power), `1e${power}`));
  if (tolerance > 0) parts.push(draw("line", { class: "mark", x1: LEFT, x2: WIDTH - RIGHT, y1: y(tolerance), y2: y(tolerance) }));
  const path = points.map((one) => `${x(one.round).toFixed(1)},${y(one.change).toFixed(1)}`).join(" ");
  parts.push(draw("polyline", { class: "line", points: path }));
  for (const one of points.slice(-60)) {
    const dot = draw("circle", { class: "dot", cx: x(one.round), cy: y(one.change), r: 2.5 });
    dot.append(draw("title", {}, `round ${one.round}: ${one.change.toPrecision(3)}`));
    parts.push(dot);
  }
  const last = points.at(-1);
  return chart(parts, rounds, `Change of the subspace by round${last ? `, last ${last.change.toPrecision(2)}` : ""}`);
}

// Seconds by round; rounds with dropouts stand out.
export function times(rounds) {
  const shown = rounds.slice(-80);
  const most = Math.max(...shown.map((one) => one.seconds), 0.1);
  const y = (value) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / most);
  const x = across(shown, true);
  const wide = (WIDTH - LEFT - RIGHT) / Math.max(shown.length, 1);
  const parts = [...level(y(0), "0"), ...level(y(most), most.toPrecision(2))];
  for (const one of shown) {
    const bar = draw("rect", {
      class: one.dropouts.length ? "bar bad" : "bar", x: x(one.round) - 0.42 * wide, y: y(one.seconds),
      width: 0.84 * wide, height: Math.max(y(0) - y(one.seconds), 0.5),
    });
    const missing = one.dropouts.length ? `, without ${one.dropouts.join(", ")}` : "";
    bar.append(draw("title", {}, `round ${one.round}: ${one.seconds.toFixed(2)} s${missing}`));
    parts.push(bar);
  }
  return chart(parts, shown, "Seconds that each round took");
}

// Error on hidden entries by rank, over that of the medians, with standard errors.
export function rankCurve(curve, chosen) {
  const most = Math.max(1, ...curve.map(([, error, off]) => error + off)) * 1.05;
  const y = (value) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / most);
  const x = (place) => LEFT + 10 + (WIDTH - LEFT - RIGHT - 20) * place / Math.max(curve.length - 1, 1);
  const parts = [...level(y(0), "0"), draw("text", { x: LEFT - 6, y: y(1) + 4, "text-anchor": "end" }, "1"),
    draw("line", { class: "mark", x1: LEFT, x2: WIDTH - RIGHT, y1: y(1), y2: y(1) }),
    draw("polyline", { class: "line", points: curve.map(([, error], place) => `${x(place).toFixed(1)},${y(error).toFixed(1)}`).join(" ") })];
  const step = Math.ceil(curve.length / 12);
  curve.forEach(([rank, error, off], place) => {
    parts.push(draw("line", { class: "line", x1: x(place), x2: x(place), y1: y(error + off), y2: y(Math.max(error - off, 0)) }));
    const dot = draw("circle", { class: rank === chosen ? "dot" : "dot hollow", cx: x(place), cy: y(error), r: rank === chosen ? 5 : 3 });
    dot.append(draw("title", {}, `rank ${rank}: ${error.toPrecision(3)} ± ${off.toPrecision(2)}`));
    parts.push(dot);
    if (place % step === 0) parts.push(draw("text", { x: x(place), y: HEIGHT - 6, "text-anchor": "middle" }, String(rank)));
  });
  return draw("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `Error on hidden entries by rank; rank ${chosen} is chosen` }, ...parts);
}

// Singular values in powers of ten; those beyond the rank are left out of the low-rank part.
export function spectrum(values, rank) {
  const shown = values.slice(0, 40);
  const low = Math.floor(Math.log10(Math.min(...shown)) - 0.01), high = Math.ceil(Math.log10(Math.max(...shown)));
  const y = (value) => TOP + (HEIGHT - TOP - BOTTOM) * (high - Math.log10(value)) / Math.max(high - low, 1);
  const wide = (WIDTH - LEFT - RIGHT) / shown.length, parts = [];
  const step = Math.max(1, Math.ceil((high - low) / 4));
  for (let power = low; power <= high; power += step) parts.push(...level(y(10 ** power), `1e${power}`));
  shown.forEach((value, place) => {
    const bar = draw("rect", { class: place < rank ? "bar" : "bar out", x: LEFT + (place + 0.1) * wide, y: y(value),
      width: 0.8 * wide, height: Math.max(HEIGHT - BOTTOM - y(value), 0.5) });
    bar.append(draw("title", {}, `${place + 1}: ${value.toPrecision(4)}`));
    parts.push(bar);
  });
  parts.push(draw("text", { x: LEFT, y: HEIGHT - 6 }, "1"));
  parts.push(draw("text", { x: WIDTH - RIGHT, y: HEIGHT - 6, "text-anchor": "end" }, String(shown.length)));
  return draw("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `Singular values; the rank is ${rank}` }, ...parts);
}

function across(rounds, inSlots) {
  const first = rounds.length ? rounds[0].round : 0, count = Math.max(rounds.length, 1);
  const wide = WIDTH - LEFT - RIGHT;
  if (inSlots) return (round) => LEFT + wide * (round - first + 0.5) / count;
  return (round) => LEFT + wide * (round - first) / Math.max(count - 1, 1);
}

function level(at, label) {
  return [
    draw("line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: at, y2: at }),
    draw("text", { x: LEFT - 6, y: at + 4, "text-anchor": "end" }, label),
  ];
}

function chart(parts, rounds, label) {
  if (rounds.length) {
    parts.push(draw("text", { x: LEFT, y: HEIGHT - 6 }, `round ${rounds[0].round}`));
    parts.push(draw("text", { x: WIDTH - RIGHT, y: HEIGHT - 6, "text-anchor": "end" }, `${rounds.at(-1).round}`));
  }
  return draw("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label }, ...parts);
}
