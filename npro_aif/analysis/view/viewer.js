"use strict";
// Draws the numbers in #data. One state, one function `update` that shows it; no library, nothing is loaded.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const { sites, drawing, runs } = data;
  const controls = labelsOf(sites.control), looks = [...sites.observation, ...sites.sensor];
  const frames = Math.max(...runs.map((run) => run.steps.length)); // the last frame is the end of the longest episode
  const wide = window.matchMedia("(min-width: 901px)").matches;
  const state = { frame: 0, ahead: 0, shown: runs.length > 1 && wide ? "both" : "0", bars: "total", timer: null };
  const TERMS = {
    risk: "outcomes that it does not prefer (for Active less the entropy of where moves lead)",
    ambiguity: "observations that will say little",
    novelty: "what it will learn; negative, as it lowers the cost",
    complexity: "parameters, moves or observations imagined otherwise than the model has them",
    controls: "how improbable the controls are a priori",
    cost: "all terms together",
  };
  const BOUND = "aria-label";
  const FEW = 3; // values of a site without labels that are still worth telling
  const SURE = 0.95; // a thing that is more probable is drawn as one that is there

  // --- Small helpers ---

  function labelsOf(several) { // of the product of several sites, in C order
    return several.reduce((all, site) => all.flatMap((left) => names(site).map((own) => (left ? `${left}, ${own}` : own))), [""]);
  }
  function names(site) { return site.labels || Array.from({ length: site.size }, (_, i) => String(i)); }
  function make(space, tag, attributes = {}, ...kids) {
    const node = space ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
      else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : value);
    }
    node.append(...kids.filter((kid) => kid !== null && kid !== undefined));
    return node;
  }
  const el = (tag, ...rest) => make(false, tag, ...rest);
  const svg = (tag, ...rest) => make(true, tag, ...rest);
  const fixed = (x, digits = 3) => (x === null || x === undefined ? "–" : (Math.abs(x) < 0.5 * 10 ** -digits ? 0 : x).toFixed(digits).replace("-", "−"));
  const pairs = (flat) => Array.from({ length: flat.length / 2 }, (_, i) => [flat[2 * i], flat[2 * i + 1]]);
  const percent = (p) => `${Math.round(100 * p)} %`;
  const spell = (name) => name.replace(/_/g, " ");
  const observed = (name) => spell(name).replace(/^seen /, "");
  const alike = (name) => { // one of many sites with the same words, as the cells of a view: which one says little
    const labels = looks.find((site) => site.name === name)?.labels;
    return labels && looks.filter((site) => String(site.labels) === String(labels)).length > 6;
  };
  const list = (entries, most = 3) => {
    const sorted = [...entries].sort((a, b) => b[1] - a[1]);
    const rest = sorted.length - most;
    return sorted.slice(0, most).map(([label, p]) => (/^[+−-]?\d/.test(label) ? `${label} (${fixed(p)})` : `${label} ${fixed(p)}`)).join(" · ") + (rest > 0 ? ` · ${rest} more` : "");
  };

  // --- The world ---

  function worldView(width, { heat = [], things = [], agents = [], moves = [], path = [], trail = [], faint = 1, words }) {
    const [left, top, w, h] = drawing.bounds;
    const unit = w / Math.max(width, 160); // of one pixel
    const at = (place) => drawing.places[place];
    const picture = svg("svg", { viewBox: `${left} ${top} ${w} ${h}`, role: "img", [BOUND]: words });
    for (const [x, y, kind, label] of drawing.tiles) {
      picture.append(svg("rect", { x: x - 0.5, y: y - 0.5, width: 1, height: 1, class: "tile", fill: `var(--${kind})` }));
    }
    for (const [place, p] of heat) {
      const [x, y] = at(place);
      picture.append(svg("rect", { x: x - 0.48, y: y - 0.48, width: 0.96, height: 0.96, rx: 0.06, fill: "var(--heat)", "fill-opacity": fixed(0.6 * Math.sqrt(p)) }, svg("title", {}, `here with probability ${fixed(p)}`)));
    }
    // Things that are only probable get a corner each, where any two of them may lie at the same place.
    const unsure = things.map((flat, k) => (drawing.things[k].ground ? [] : pairs(flat).filter(([, p]) => p < SURE).map(([place]) => place)));
    const kinds = unsure.flatMap((places, k) => (places.length ? [k] : []));
    const crowded = kinds.some((k) => kinds.some((l) => l < k && unsure[l].some((place) => unsure[k].includes(place))));
    things.forEach((flat, k) => {
      const { name, path: d, colour, ground } = drawing.things[k];
      for (const [place, p] of pairs(flat)) {
        const [x, y] = at(place), corner = crowded && p < SURE && !ground ? kinds.indexOf(k) % 4 : -1;
        const [dx, dy] = corner < 0 ? [0, 0] : [[-0.22, 0.22], [0.22, -0.22], [0.22, 0.22], [-0.22, -0.22]][corner];
        const size = dx ? 0.52 : 1;
        picture.append(svg("path", { d, transform: `translate(${x + dx} ${y + dy}) scale(${size})`, fill: `var(--${colour})`, "fill-rule": "evenodd", opacity: fixed(faint * (ground ? p : Math.sqrt(p))), "data-thing": name }, svg("title", {}, `${name} ${fixed(p)}`)));
      }
    });
    for (const [x, y, , label] of drawing.tiles) {
      if (label) picture.append(svg("text", { x: x - 0.5 + 5 * unit, y: y + 0.5 - 6 * unit, "font-size": 11 * unit }, label));
    }
    for (const [x, y, text] of drawing.words) {
      picture.append(svg("text", { x, y, "font-size": 11 * unit, "text-anchor": "middle", "dominant-baseline": "central", class: "soft" }, text));
    }
    if (trail.length > 1) {
      const points = trail.map((place) => at(place).join(" ")).join("L");
      picture.append(svg("path", { d: `M${points}`, fill: "none", stroke: "var(--agent)", "stroke-width": 3 * unit, "stroke-opacity": 0.45, "stroke-linejoin": "round", "stroke-linecap": "round" }));
    }
    for (const [from, to, p] of path) picture.append(arrow(at(from), at(to), unit, { width: 1.6, opacity: 0.3 * Math.sqrt(p), head: 5 }));
    for (const [from, to, share, mass, label] of moves) {
      const title = `${label} ${fixed(share)}`;
      if (to >= 0) picture.append(arrow(at(from), at(to), unit, { width: 1.6 + 2 * mass, opacity: 0.15 + 0.85 * share, head: 8 }, title));
      else {
        const [x, y] = at(from);
        picture.append(svg("circle", { cx: x, cy: y, r: 0.36, fill: "none", stroke: "var(--arrow)", "stroke-width": (1.2 + 1.6 * mass) * unit, "stroke-opacity": fixed(0.15 + 0.85 * share), "stroke-dasharray": `${3 * unit} ${3 * unit}` }, svg("title", {}, title)));
      }
    }
    for (const { place, angle, p } of agents) {
      const [x, y] = at(place);
      const shape = angle === null ? svg("circle", { r: 0.2 }) : svg("path", { d: "M.3 0L-.22 .24L-.1 0L-.22-.24Z", transform: `rotate(${angle})` });
      picture.append(svg("g", { transform: `translate(${x} ${y})`, fill: "var(--agent)", stroke: "var(--mark)", "stroke-width": 1.5 * unit, opacity: fixed(p), "data-agent": place }, shape));
    }
    return picture;
  }

  function arrow([x0, y0], [x1, y1], unit, { width, opacity, head }, title) {
    const far = Math.hypot(x1 - x0, y1 - y0), [ux, uy] = [(x1 - x0) / far, (y1 - y0) / far];
    const lane = far < 1.6 ? 0.1 : 0; // to the right, so that a way back does not cover the way there
    const start = [x0 + 0.2 * ux - lane * uy, y0 + 0.2 * uy + lane * ux];
    const end = [x1 - 0.22 * ux - lane * uy, y1 - 0.22 * uy + lane * ux];
    const [left, top, w, h] = drawing.bounds; // a far move bends towards the middle of the picture
    const inwards = uy * (left + w / 2 - (x0 + x1) / 2) - ux * (top + h / 2 - (y0 + y1) / 2);
    const bend = far < 1.6 ? 0 : 0.22 * far * (inwards < 0 ? -1 : 1);
    const middle = [(start[0] + end[0]) / 2 + bend * uy, (start[1] + end[1]) / 2 - bend * ux];
    const turn = Math.atan2(end[1] - middle[1], end[0] - middle[0]);
    const size = head * unit, wing = (side) => `${end[0] - size * Math.cos(turn + side)} ${end[1] - size * Math.sin(turn + side)}`;
    return svg("g", { opacity: fixed(Math.min(1, opacity)), fill: "none", stroke: "var(--arrow)", "stroke-width": width * unit, "stroke-linecap": "round", "stroke-linejoin": "round" },
      title ? svg("title", {}, title) : null,
      svg("path", { d: `M${start}Q${middle} ${end}` }), svg("path", { d: `M${wing(0.5)}L${end}L${wing(-0.5)}` }));
  }

  function headingOf(table) {
    if (!drawing.heading) return null;
    const [value, p] = pairs(table[drawing.heading]).sort((a, b) => b[1] - a[1])[0];
    return p > 0.9 ? drawing.angles[value] : null;
  }

  // --- Charts ---

  function lineChart(width, { points, mark, xLabel, words, lines }) {
    const height = 128, box = { left: 46, right: 10, top: 10, bottom: 34 };
    const all = lines.flatMap((line) => line.values.filter((v) => v !== null));
    let low = Math.min(...all), high = Math.max(...all);
    if (high - low < 1e-6) { low -= 0.5; high += 0.5; }
    const end = Math.max(points[points.length - 1], 1);
    const x = (value) => box.left + ((width - box.left - box.right) * value) / end;
    const y = (value) => box.top + ((height - box.top - box.bottom) * (high - value)) / (high - low);
    const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", [BOUND]: words });
    const text = (px, py, string, anchor) => picture.append(svg("text", { x: px, y: py, "font-size": 11, "text-anchor": anchor, "dominant-baseline": "central", class: "soft" }, string));
    picture.append(svg("path", { d: `M${box.left} ${box.top}V${height - box.bottom}H${width - box.right}`, class: "axis", fill: "none" }));
    text(box.left - 6, y(high), fixed(high, 2), "end");
    text(box.left - 6, y(low), fixed(low, 2), "end");
    text(box.left, height - box.bottom + 12, "0", "middle");
    text(width - box.right, height - box.bottom + 12, String(end), "end");
    text((box.left + width - box.right) / 2, height - 8, xLabel, "middle");
    if (mark !== undefined) picture.append(svg("path", { d: `M${x(mark)} ${box.top}V${height - box.bottom}`, stroke: "var(--soft)", "stroke-width": 1, "stroke-dasharray": "3 3" }));
    for (const { values, colour, dashed } of lines) {
      const d = values.map((v, i) => `${i ? "L" : "M"}${x(points[i]).toFixed(1)} ${y(v).toFixed(1)}`).join("");
      picture.append(svg("path", { d, fill: "none", stroke: `var(--${colour})`, "stroke-width": 2, "stroke-dasharray": dashed ? "5 4" : null }));
      values.forEach((v, i) => {
        if (values.length < 40) picture.append(svg("circle", { cx: x(points[i]), cy: y(v), r: points[i] === mark ? 4.5 : 2.4, fill: `var(--${colour})` }, svg("title", {}, `${points[i]}: ${fixed(v)}`)));
      });
    }
    return picture;
  }

  function timeline(width, rows, horizon, now, words) {
    const room = Math.min(Math.max(...rows.map((row) => 7.2 * row.label.length)) + 10, 0.4 * width);
    const cell = Math.min((width - room - 8) / horizon, 40), height = 20, bottom = 22;
    const total = rows.length * height + bottom;
    const picture = svg("svg", { viewBox: `0 0 ${width} ${total}`, role: "img", [BOUND]: words });
    rows.forEach((row, i) => {
      picture.append(svg("text", { x: room - 8, y: (i + 0.5) * height, "font-size": 12, "text-anchor": "end", "dominant-baseline": "central" }, row.label));
      row.values.forEach((p, t) => picture.append(svg("rect", { x: room + t * cell + 0.5, y: i * height + 1, width: Math.max(cell - 1, 1), height: height - 2, rx: 2, fill: p > 0.005 ? "var(--agent)" : "var(--track)", "fill-opacity": p > 0.005 ? fixed(0.15 + 0.85 * p) : 1, class: "cell", onclick: () => choose({ ahead: t }) }, svg("title", {}, `step ${t + 1}: ${row.label} ${fixed(p)}`))));
    });
    const every = Math.ceil(26 / cell);
    for (let t = 0; t < horizon; t += every) picture.append(svg("text", { x: room + (t + 0.5) * cell, y: rows.length * height + 12, "font-size": 11, "text-anchor": "middle", class: "soft" }, `+${t + 1}`));
    if (now < horizon) picture.append(svg("rect", { x: room + now * cell, y: 0, width: cell, height: rows.length * height, rx: 3, fill: "none", stroke: "var(--ink)", "stroke-width": 2 }));
    return picture;
  }

  function termBar(first, u, scale) {
    const picture = svg("svg", { viewBox: "0 0 100 16", preserveAspectRatio: "none", "aria-hidden": "true" });
    const x = (value) => (100 * (value - scale.low)) / (scale.high - scale.low || 1);
    let right = 0, left = 0;
    for (const [name, value] of termsOf(first, u)) {
      const from = value >= 0 ? right : left + value, span = Math.abs(value);
      if (value >= 0) right += value; else left += value;
      picture.append(svg("rect", { x: x(from), y: 3, width: Math.max(x(from + span) - x(from), 0), height: 10, fill: `var(--${name})` }, svg("title", {}, `${name} ${fixed(value)}`)));
    }
    picture.append(svg("rect", { x: x(0) - 0.4, y: 0, width: 0.8, height: 16, fill: "var(--soft)" }));
    picture.append(svg("rect", { x: x(right + left) - 0.8, y: 0, width: 1.6, height: 16, fill: "var(--ink)" }));
    return picture;
  }

  function termsOf(first, u) { // as shown: in total, or beyond those of the best control
    const terms = first.terms || { cost: first.cost };
    const best = first.cost.indexOf(Math.min(...first.cost.filter((c) => c !== null)));
    return Object.entries(terms).map(([name, values]) => [name, state.bars === "total" ? values[u] : values[u] - values[best]]);
  }

  // --- Tables of beliefs ---

  function siteTable(groups, most = 8) {
    const body = el("tbody");
    for (const [site, flat] of groups) {
      body.append(el("tr", { class: "cap" }, el("th", { colspan: 3, scope: "rowgroup" }, spell(site.name))));
      const sorted = pairs(flat).sort((a, b) => b[1] - a[1]);
      for (const [value, p] of sorted.slice(0, most)) {
        body.append(el("tr", {}, el("td", {}, names(site)[value]), el("td", { class: "num", "data-site": site.name, "data-value": value }, fixed(p)),
          el("td", { class: "bar" }, el("div", { class: "meter" }, el("div", { style: `width:${100 * p}%` })))));
      }
      if (sorted.length > most) body.append(el("tr", {}, el("td", { colspan: 3, class: "soft" }, `${sorted.length - most} more`)));
    }
    return el("table", {}, body);
  }
  const groupsOf = (roles, tables) => roles.flatMap((role) => sites[role]).filter((site) => tables[site.name] && site.size > 1).map((site) => [site, tables[site.name]]);

  function tree(branches, before = {}) {
    return el("ul", {}, ...branches.map((branch) => {
      const seen = Object.entries(branch.seen).map(([name, label]) => `${spell(name)} ${label}`).join(", ") || "as before";
      const done = Object.entries(branch.control).sort((a, b) => b[1] - a[1]).map(([label, p]) => (p > 0.995 ? label : `${label} ${fixed(p, 2)}`)).join(" or ");
      const believed = Object.entries(branch.believed).filter(([name, most]) => String(before[name]) !== String(most)).map(([name, [label, p]]) => `${spell(name)} ${label} ${fixed(p, 2)}`).join(", ");
      return el("li", {}, el("span", { class: "soft" }, `${percent(branch.probability)} `), seen, done ? el("b", {}, ` → ${done}`) : null,
        believed ? el("div", { class: "soft small" }, `believes ${believed}`) : null,
        branch.kids.length ? tree(branch.kids, branch.believed) : null, branch.more ? el("div", { class: "soft small" }, `${branch.more} more branches`) : null);
    }));
  }

  // --- One run ---

  function part(title, caption, extra = "") {
    const body = el("div"), note = el("p", {}, caption);
    return { node: el("section", { class: `part ${extra}` }, el("h3", {}, title), body, note), body, note };
  }

  function runView(run, index) {
    const id = `run-${index}`;
    const now = el("p", { class: "now", "aria-live": "polite" });
    const parts = {
      truth: part("True world", "", "half"), belief: part("Believed world", "", "half"), plan: part("Planned future", "", "future"), first: part("First control and its cost", ""),
      energy: part("Free energy F while planning", ""), entropy: part("Uncertainty over the episode", ""), time: part("Controls planned, step by step", "", "wide"),
    };
    const numbers = el("div", { class: "columns" }), branches = el("div", { class: "tree" });
    const tabled = el("details", { open: !drawing }, el("summary", {}, "All numbers of this step"), numbers);
    const forked = el("details", { open: true }, el("summary", {}, "Contingent plan: what it will do, depending on what it sees"), branches);
    const node = el("article", { class: "run", "aria-labelledby": id }, el("header", {}, el("h2", { id }, run.name),
      el("p", { class: "soft small" }, run.wants), el("p", { class: "soft small result" }, `reward ${fixed(run.reward, 2)} in ${run.steps.length} steps`), now),
      el("div", { class: "parts" }, ...Object.values(parts).map((each) => each.node)), forked, tabled);
    return { node, run, now, parts, numbers, branches, forked };
  }

  const widthOf = (section) => Math.max(section.node.clientWidth, 200);
  const over = () => el("div", { class: "over" }, "The episode is over: nothing is planned any more.");

  function show(view) {
    const { run, now, parts } = view;
    const last = run.steps.length, frame = Math.min(state.frame, last), step = run.steps[frame];
    showTruth(view, frame);
    const doing = step ? el("strong", { "data-done": step.done }, controls[step.done]) : null;
    if (step) {
      const seen = [...new Set(Object.entries(step.seen).filter(([, label]) => label !== "unseen").map(([name, label]) => (alike(name) ? label : `${observed(name)} ${label}`)))];
      const chosen = step.first.probability[step.done], tied = step.first.probability.filter((p) => Math.abs(p - chosen) < 2e-5).length;
      const saw = seen.length === 0 ? "It saw nothing." : `It saw ${seen.slice(0, 8).join(", ")}.`;
      now.replaceChildren(`Step ${frame + 1} of ${last}. ${saw} It plans ${step.future.horizon} step${step.future.horizon > 1 ? "s" : ""} ahead and does `, doing, `, q = ${fixed(step.first.probability[step.done])}${tied > 1 ? `, one of ${tied} that are equally likely` : ""}.`);
    } else now.replaceChildren(`After ${last} steps the episode is over, with a total reward of ${fixed(run.reward, 2)}.`);
    for (const name of ["belief", "plan", "first", "energy", "time"]) {
      if (!step) { parts[name].body.replaceChildren(over()); parts[name].note.textContent = ""; }
    }
    showEntropy(view, frame);
    view.forked.hidden = !step || !step.tree;
    view.numbers.replaceChildren();
    if (!step) return;
    const t = Math.min(state.ahead, step.future.horizon);
    showBelief(view, step);
    showPlan(view, step, t);
    showFirst(view, step);
    showEnergy(view, step);
    showTime(view, step, t);
    showNumbers(view, step);
    if (step.tree) view.branches.replaceChildren(tree(step.tree));
  }

  function showTruth({ run, parts: { truth } }, frame) {
    const now = run.truth[frame];
    if (!now) { truth.body.replaceChildren(el("div", { class: "over" }, "The environment does not tell.")); return; }
    const said = [...sites.parameter, ...sites.state].filter((site) => site.name in now.values && site.size > 1 && (site.labels || site.size <= FEW || !drawing)).map((site) => `${spell(site.name)} ${names(site)[now.values[site.name]]}`);
    truth.note.textContent = said.join(", ");
    if (!drawing) { truth.body.replaceChildren(siteTable(groupsOf(["parameter", "state"], Object.fromEntries(Object.entries(now.values).map(([name, v]) => [name, [v, 1]]))))); truth.note.textContent = "what the environment really is in"; return; }
    const angle = drawing.heading ? drawing.angles[now.values[drawing.heading]] : null;
    truth.body.replaceChildren(worldView(widthOf(truth), { things: now.things, trail: run.truth.slice(0, frame + 1).map((each) => each.place), agents: [{ place: now.place, angle, p: 1 }], words: `True world: ${said.join(", ")}` }));
  }

  function showBelief({ parts: { belief } }, step) {
    const groups = groupsOf(["parameter", "state"], step.belief.sites);
    const one = ([site, flat]) => `${spell(site.name)}: ${site.labels || site.size <= FEW ? list(pairs(flat).map(([v, p]) => [names(site)[v], p]), 2) : `${flat.length / 2} possible`}`;
    const said = (roles) => groupsOf(roles, step.belief.sites).map(one).join("; ");
    belief.note.textContent = drawing ? said(["parameter"]) : "what the agent thinks is the case";
    if (!drawing) { belief.body.replaceChildren(siteTable(groups)); return; }
    const heat = pairs(step.belief.places), angle = headingOf(step.belief.sites);
    const agents = heat.filter(([, p]) => p > 0.05).map(([place, p]) => ({ place, angle, p: Math.sqrt(p) }));
    belief.body.replaceChildren(worldView(widthOf(belief), { heat, things: step.belief.things, agents, words: `Believed world: ${said(["parameter", "state"])}` }));
  }

  function showPlan({ parts: { plan } }, step, t) {
    const { future } = step, when = t === 0 ? "Now" : `In ${t} step${t > 1 ? "s" : ""}`;
    const doing = t < future.horizon ? `does ${list(future.control[t].map((p, u) => [controls[u], p]).filter(([, p]) => p >= 0.005))}` : "the plan ends here";
    plan.note.textContent = `${when}: ${doing}`;
    if (!drawing) { plan.body.replaceChildren(siteTable(groupsOf(["state", "memory"], Object.fromEntries(Object.entries(future.sites).map(([name, rows]) => [name, rows[t]]))))); return; }
    const heat = pairs(future.places[t]), presence = Object.fromEntries(heat);
    const moves = (future.moves[t] || []).map(([from, to, u, p]) => [from, to, Math.min(1, p / Math.max(presence[from] || p, 1e-9)), presence[from] || p, controls[u]]);
    const most = new Map();
    future.moves.slice(t + 1).forEach((rows) => rows.forEach(([from, to, , p]) => { if (to >= 0) most.set(`${from} ${to}`, Math.max(p, most.get(`${from} ${to}`) || 0)); }));
    const path = [...most].map(([key, p]) => [...key.split(" ").map(Number), p]);
    plan.body.replaceChildren(worldView(widthOf(plan), { heat, things: step.belief.things, faint: 0.55, moves, path, words: `Planned future. ${when}: ${doing}` }));
  }

  function showFirst({ parts: { first } }, step) {
    const own = step.first, known = own.cost !== null;
    const scale = { low: 0, high: 0 };
    if (known) own.cost.forEach((cost, u) => {
      if (cost === null) return;
      const values = termsOf(own, u).map(([, v]) => v);
      scale.high = Math.max(scale.high, values.filter((v) => v > 0).reduce((a, b) => a + b, 0));
      scale.low = Math.min(scale.low, values.filter((v) => v < 0).reduce((a, b) => a + b, 0));
    });
    const short = Math.max(...controls.map((label) => label.length)) <= 12;
    const rows = controls.map((label, u) => el("tr", { class: u === step.done ? "done" : null },
      el("td", { class: short ? "short" : null }, label), el("td", { class: "num", "data-q": u }, fixed(own.probability[u])),
      known ? el("td", { class: "num", "data-cost": u }, own.cost[u] === null ? "never" : fixed(own.cost[u])) : null,
      known ? el("td", { class: "bar" }, own.cost[u] === null ? "" : termBar(own, u, scale)) : null));
    const bars = known ? el("th", { class: "bar", scope: "col" }, state.bars === "total" ? "terms" : "beyond best") : null;
    first.body.replaceChildren(el("table", {}, el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "control"), el("th", { scope: "col", class: "num" }, "q(u₁)"), known ? el("th", { scope: "col", class: "num" }, "cost, nats") : null, bars)), el("tbody", {}, ...rows)));
    const shown = known ? Object.entries(own.terms || { cost: own.cost }).filter(([, values]) => values.some((v) => Math.abs(v) >= 5e-4)).map(([name]) => name) : [];
    const chips = shown.map((name) => el("li", { title: TERMS[name] }, svg("svg", { viewBox: "0 0 20 20", "aria-hidden": "true" }, svg("rect", { x: 3, y: 5, width: 14, height: 10, fill: `var(--${name})` })), name));
    first.note.replaceChildren(own.note, known ? el("ul", { class: "legend" }, ...chips) : "", known ? el("button", { type: "button", "data-bars": "", onclick: () => choose({ bars: state.bars === "total" ? "difference" : "total" }) }, state.bars === "total" ? "Compare with the best" : "Show in total") : "");
  }

  function showEnergy({ parts: { energy } }, step) {
    const { history, iterations, total, ending } = step.energy;
    if (history.length < 2) energy.body.replaceChildren(el("div", { class: "over" }, "This plan was found in one go: there are no iterations to draw."));
    else energy.body.replaceChildren(lineChart(widthOf(energy), { points: iterations, lines: [{ values: history, colour: "agent" }], xLabel: "iterations of the solver", words: `Free energy over ${iterations[iterations.length - 1]} iterations, from ${fixed(history[0])} to ${fixed(total)} nats` }));
    energy.note.textContent = `F = ${fixed(total)} nats. ${ending}`;
  }

  function showEntropy({ run, parts: { entropy } }, frame) {
    const points = run.steps.map((_, k) => k), of = (name) => run.steps.map((step) => step.belief.entropy[name]);
    const [theta, x] = [of("parameter"), of("state")], at = Math.min(frame, run.steps.length - 1);
    entropy.body.replaceChildren(lineChart(widthOf(entropy), { points, mark: at, xLabel: "steps taken", lines: [{ values: theta, colour: "reward" }, { values: x, colour: "agent", dashed: true }], words: `Entropy of the belief over the episode; after ${at} steps ${fixed(theta[at])} nats about parameters and ${fixed(x[at])} about the state` }));
    const chip = (colour, dashed) => svg("svg", { viewBox: "0 0 20 20", "aria-hidden": "true" }, svg("path", { d: "M1 10H19", stroke: `var(--${colour})`, "stroke-width": 2.5, "stroke-dasharray": dashed ? "5 4" : null }));
    entropy.note.replaceChildren(el("ul", { class: "legend" }, el("li", {}, chip("reward"), el("span", {}, "of the parameters, ", el("span", { "data-entropy": "parameter" }, fixed(theta[at])), " nats")), el("li", {}, chip("agent", true), el("span", {}, "of the state, ", el("span", { "data-entropy": "state" }, fixed(x[at])), " nats"))));
  }

  function showTime({ parts: { time } }, step, t) {
    const { future } = step;
    const rows = controls.map((label, u) => ({ label, values: future.control.map((row) => row[u]) }));
    time.body.replaceChildren(timeline(widthOf(time), rows, future.horizon, t, `Probability of each control at each of the ${future.horizon} planned steps`));
    time.note.textContent = "The stronger the colour, the likelier the control at that step, q(u). The frame is the step that the planned future shows.";
  }

  function showNumbers({ numbers }, step) {
    const terms = Object.entries(step.energy.terms).map(([name, value]) => el("tr", {}, el("td", {}, spell(name)), el("td", { class: "num", "data-term": name }, fixed(value))));
    const sum = el("tr", { class: "cap" }, el("th", { scope: "row" }, "F"), el("td", { class: "num", "data-term": "F" }, fixed(step.energy.total)));
    const block = (title, ...kids) => el("section", { class: "part" }, el("h3", {}, title), ...kids);
    const seen = Object.entries(step.seen).map(([name, label]) => el("tr", {}, el("td", {}, spell(name)), el("td", {}, label)));
    numbers.append(block("Belief", siteTable(groupsOf(["parameter", "state"], step.belief.sites))),
      block("Terms of F, in nats", el("table", {}, el("tbody", {}, ...terms, sum))),
      block("What was seen", el("table", {}, el("tbody", {}, ...seen))));
    if (step.first.terms) {
      const tables = controls.map((label, u) => el("table", {}, el("caption", {}, label), el("tbody", {}, ...Object.entries(step.first.terms).map(([name, values]) =>
        el("tr", {}, el("td", {}, name), el("td", { class: "num", "data-part": `${name} ${u}` }, fixed(values[u])))))));
      const section = block("Cost of each first control, by term, in nats", el("div", { class: "each" }, ...tables));
      section.classList.add("whole");
      numbers.append(section);
    }
  }

  // --- The page ---

  function legend() {
    const icon = (...kids) => svg("svg", { viewBox: "-0.6 -0.6 1.2 1.2", "aria-hidden": "true" }, ...kids);
    const entries = [[icon(drawing.heading ? svg("path", { d: "M.4 0L-.3 .32L-.14 0L-.3-.32Z", fill: "var(--agent)" }) : svg("circle", { r: 0.3, fill: "var(--agent)" })), "agent"]];
    const known = new Set();
    for (const thing of drawing.things) {
      if (known.has(thing.name)) continue;
      known.add(thing.name);
      entries.push([icon(svg("path", { d: thing.path, fill: `var(--${thing.colour})`, "fill-rule": "evenodd" })), thing.name]);
    }
    for (const [kind, word] of [["goal", "goal"], ["cue", "cue"]]) {
      if (drawing.tiles.some((tile) => tile[2] === kind)) entries.push([icon(svg("rect", { x: -0.45, y: -0.45, width: 0.9, height: 0.9, fill: `var(--${kind})` })), word]);
    }
    entries.push([icon(svg("rect", { x: -0.5, y: -0.5, width: 0.34, height: 1, fill: "var(--heat)", opacity: 0.15 }), svg("rect", { x: -0.16, y: -0.5, width: 0.33, height: 1, fill: "var(--heat)", opacity: 0.4 }), svg("rect", { x: 0.17, y: -0.5, width: 0.33, height: 1, fill: "var(--heat)", opacity: 0.65 })), "where it is: the stronger, the likelier"]);
    entries.push([icon(arrow([-0.7, 0.1], [0.75, 0.1], 0.06, { width: 1.6, opacity: 1, head: 6 })), "what it would do"]);
    entries.push([icon(svg("circle", { r: 0.42, fill: "none", stroke: "var(--arrow)", "stroke-width": 0.1, "stroke-dasharray": "0.16 0.16" })), "acts on the spot"]);
    entries.push([null, "Pale things are only probable (opacity: √p)."]);
    return el("ul", { class: "legend", [BOUND]: "Legend" }, ...entries.map(([sign, text]) => el("li", {}, sign, text)));
  }

  function help() {
    const entry = (name, text) => el("div", {}, el("dt", {}, name), el("dd", {}, text));
    return el("details", { class: "help" }, el("summary", {}, "How to read this page"), el("dl", {},
      entry("Two sliders", "“Steps taken” goes through the episode; at every step the agent plans anew. “Look ahead” goes into the future that it plans at that step."),
      entry("True and believed", "Left what the environment really is in, right what the agent thinks: things as pale as they are improbable, its own place as a shade."),
      entry("q(u₁)", "The probability of each control in the plan's first step. The agent does the likeliest one (in blue)."),
      entry("Cost", "The free energy in nats if that control came first and the plan were followed from then on; lower is better. The bar's parts add up to it, those left of the line negative; the black mark is the sum."),
      ...Object.entries(TERMS).filter(([name]) => name !== "cost").map(([name, text]) => entry(name[0].toUpperCase() + name.slice(1), text)),
      entry("Keyboard", "← → steps, ↑ ↓ look ahead, space plays, Home and End.")));
  }

  const views = runs.map(runView);
  const button = (label, text, action, extra = {}) => el("button", { type: "button", [BOUND]: label, onclick: action, ...extra }, text);
  const play = button("Play the episode", "Play", () => toggle(), { class: "main" });
  const first = button("First step", "First", () => choose({ frame: 0, ahead: 0 }));
  const back = button("One step back", "Back", () => choose({ frame: state.frame - 1 }));
  const next = button("One step on", "Next", () => choose({ frame: state.frame + 1 }));
  const slider = (id, name) => {
    const input = el("input", { type: "range", id, min: 0, max: 1, step: 1, value: 0, oninput: () => choose({ [name]: Number(input.value) }) });
    return input;
  };
  const steps = slider("steps", "frame"), ahead = slider("ahead", "ahead");
  const stepsOut = el("output", { for: "steps", id: "steps-out" }), aheadOut = el("output", { for: "ahead", id: "ahead-out" });
  const theme = button("Switch between light and dark", "", () => paint(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
  const choice = runs.length > 1 ? el("fieldset", { class: "choice", [BOUND]: "Which agents to show" }, ...[...runs.map((run, i) => [String(i), run.name]), ["both", runs.length > 2 ? "All" : "Side by side"]].map(([value, text]) =>
    el("label", {}, el("input", { type: "radio", name: "shown", value, checked: value === state.shown, onchange: () => choose({ shown: value }) }), el("span", {}, text)))) : null;
  const columns = el("div", { class: "runs" }, ...views.map((view) => view.node));
  document.getElementById("page").append(
    el("header", { class: "top" }, el("div", {}, el("h1", {}, data.title), el("p", { class: "soft" }, `${data.about} An episode with seed ${runs[0].seed}: what was true, what the agent believed, and what it planned.`.trim())), theme),
    el("nav", { class: "player", [BOUND]: "Episode" }, el("div", { class: "buttons" }, first, back, play, next),
      el("div", { class: "slide" }, el("label", { for: "steps" }, "Steps taken"), stepsOut, steps), el("div", { class: "slide" }, el("label", { for: "ahead" }, "Look ahead"), aheadOut, ahead), choice),
    drawing ? legend() : "", columns, help());

  function choose(change) {
    if ("frame" in change && !("ahead" in change) && change.frame !== state.frame) change.ahead = 0;
    Object.assign(state, change);
    state.frame = Math.max(0, Math.min(frames, state.frame));
    update();
  }

  function shownViews() { return views.filter((_, i) => state.shown === "both" || state.shown === String(i)); }

  function update() {
    views.forEach((view) => { view.node.hidden = !shownViews().includes(view); });
    columns.classList.toggle("two", shownViews().length > 1);
    const longest = Math.max(0, ...shownViews().map(({ run }) => (run.steps[state.frame] ? run.steps[state.frame].future.horizon : 0)));
    state.ahead = Math.max(0, Math.min(longest, state.ahead));
    steps.max = frames; steps.value = state.frame;
    ahead.max = longest; ahead.value = state.ahead; ahead.disabled = longest === 0;
    stepsOut.textContent = `${state.frame} of ${frames}`;
    aheadOut.textContent = longest === 0 ? "the end" : state.ahead === 0 ? "now" : `${state.ahead} of ${longest}`;
    first.disabled = back.disabled = state.frame === 0;
    next.disabled = state.frame === frames;
    shownViews().forEach(show);
  }

  function toggle() {
    if (state.timer) { clearInterval(state.timer); state.timer = null; }
    else {
      if (state.frame === frames) choose({ frame: 0 });
      state.timer = setInterval(() => { if (state.frame >= frames) toggle(); else choose({ frame: state.frame + 1 }); }, 1100);
    }
    play.textContent = state.timer ? "Pause" : "Play";
    play.setAttribute(BOUND, state.timer ? "Pause" : "Play the episode");
  }

  function paint(name) {
    document.documentElement.dataset.theme = name;
    theme.textContent = name === "dark" ? "Light" : "Dark";
  }

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const on = event.target, busy = on.matches && on.matches("input, button, summary, select");
    const keys = {
      ArrowRight: { frame: state.frame + 1 }, ArrowLeft: { frame: state.frame - 1 }, ArrowUp: { ahead: state.ahead + 1 }, ArrowDown: { ahead: state.ahead - 1 },
      Home: { frame: 0 }, End: { frame: frames },
    };
    if (on.type === "range" || on.type === "radio") return; // they have keys of their own
    if (event.key === " " && !busy) { event.preventDefault(); toggle(); }
    else if (keys[event.key]) { event.preventDefault(); choose(keys[event.key]); }
  });
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  dark.addEventListener("change", () => paint(dark.matches ? "dark" : "light"));
  paint(dark.matches ? "dark" : "light");
  let width = window.innerWidth;
  window.addEventListener("resize", () => { if (window.innerWidth !== width) { width = window.innerWidth; update(); } });
  update();
})();
