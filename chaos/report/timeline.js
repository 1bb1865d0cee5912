"use strict";
// Draws what chaos/report/timeline.py computed.  Times are seconds since the first event.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const $ = (id) => document.getElementById(id);
  const lanesCanvas = $("lanes"), overview = $("overview"), tip = $("tip");
  const MIN_SPAN = 20e-6;       // seconds; events are recorded to less than that
  const AXIS = 26, ROW = 17, PAD = 5, MARKS = 14, LABELS = 14;

  // -- words ------------------------------------------------------------------------------------------

  function element(name, attributes = {}, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) {
      if (key === "class") made.className = value;
      else if (key.startsWith("on")) made[key] = value;
      else made.setAttribute(key, value);
    }
    made.append(...children.filter((child) => child !== null && child !== undefined));
    return made;
  }

  const plural = (count, noun) => `${count} ${noun}${count === 1 ? "" : "s"}`;

  function seconds(t, span = data.end) {
    const digits = span > 5 ? 2 : span > 0.5 ? 3 : span > 0.05 ? 4 : 6;
    return `${t.toFixed(digits)} s`;
  }

  // -- what the page is about -------------------------------------------------------------------------

  const violations = data.rulings.flatMap((ruling) =>
    ruling.violations.map((one, at) => ({ ...one, ruling, id: `${ruling.name}-${at + 1}` })));
  violations.sort((a, b) => a.at - b.at);

  function outcome() {
    const meant = data.history.breaks || [];
    const broken = data.rulings.filter((one) => one.demanded && one.outcome === "violated").map((one) => one.name);
    const text = {
      passed: `Passed: ${data.must.join(", ") || "nothing was demanded"}`,
      violated: broken.length && broken.every((name) => meant.includes(name)) ? `Broken on purpose: ${broken.join(", ")} violated, as expected`
        : `Violated: ${broken.map((name) => meant.includes(name) ? `${name}, as expected` : name).join(", ")}`,
      unknown: `Unknown: ${data.why}`,
    }[data.outcome];
    const title = $("outcome");
    title.textContent = text;
    title.className = data.outcome;
    document.title = `${text} (seed ${data.history.seed})`;
    const history = data.history;
    $("facts").textContent = [
      `seed ${history.seed}`, plural(history.masters, "master"), plural(history.clients.length, "client"),
      `TTL ${history.ttl} s`, `${plural(data.summary.events, "event")} in ${data.summary.seconds.toFixed(2)} s`,
      `begins at t=${data.begin.toFixed(6)}`, ...(data.history.variant ? [`broken variant ${data.history.variant}`] : []),
      ...(data.never_struck.length ? [`never struck: ${data.never_struck.join(", ")}`] : []),
      ...(data.perhaps_cut ? ["no footer: perhaps cut"] : []),
    ].join(" · ");
    const words = { passed: "holds", violated: "violated", unknown: "unknown" };
    for (const ruling of data.rulings) {
      const count = ruling.count ? `, ${ruling.count} times` : "";
      const small = [ruling.demanded ? "" : "not demanded", ruling.note].filter(Boolean).join("; ");
      $("rulings").append(element("li", { class: `${ruling.outcome}${ruling.demanded ? "" : " optional"}` },
        element("b", {}, ruling.name), words[ruling.outcome] + count, small ? element("small", {}, small) : null));
    }
  }

  function listViolations() {
    const section = $("violations");
    const found = data.rulings.reduce((sum, ruling) => sum + ruling.count, 0);
    section.append(element("h2", {}, found ? plural(found, "violation") : "Violations"));
    if (!violations.length) section.append(element("p", { class: "none" }, "None was found."));
    for (const ruling of data.rulings) {
      const own = violations.filter((one) => one.ruling === ruling);
      if (!own.length) continue;
      section.append(element("h3", {}, ruling.name + (ruling.demanded ? "" : " (not demanded)")));
      const list = element("ol");
      for (const one of own) {
        const link = element("a", { href: `#${one.id}`, class: "goto", title: "Show it in the timeline",
          onclick: (event) => { event.preventDefault(); choose(one, true); } }, `${seconds(one.at, 0.5)}  ${one.sentence}`);
        // Not the id of the link itself: the browser would scroll here, and away from the timeline.
        list.append(element("li", { id: `case-${one.id}`, class: "case" }, link,
          ...one.events.map(([line, , , text]) => element("code", {}, `line ${line}: ${text}`))));
      }
      section.append(list);
      if (ruling.count > own.length) {
        section.append(element("p", { class: "none" }, `and ${ruling.count - own.length} more, which are counted only`));
      }
    }
  }

  function table(caption, head, rows) {
    if (!rows.length) return null;
    return element("table", {}, element("caption", {}, caption),
      element("thead", {}, element("tr", {}, ...head.map((cell) => element("th", { scope: "col" }, cell)))),
      element("tbody", {}, ...rows.map((row) => element("tr", {}, ...row.map((cell) => element("td", {}, String(cell)))))));
  }

  function listFigures() {
    const summary = data.summary, pairs = (values) => Object.entries(values);
    const tables = [
      table("Operations", ["", "invoked", "ok", "failed", "unclear", "not invoked", "never ended"],
        pairs(summary.operations).map(([op, of]) => [op, of.invoke, of.ok, of.fail, of.info, of.unasked, of.unended])),
      table("Faults", ["", "times", "what it does"], pairs(summary.faults).map(([name, times]) => [name, times, data.meanings[name] || ""])),
      table("Locks", ["", "holds", "held, s", "longest, s", "longest without holder, s"],
        summary.locks.slice(0, 40).map((of) => [of.lock, of.holds, of.held.toFixed(3), of.longest_hold.toFixed(3), of.longest_gap.toFixed(3)])),
      table("Lost leases", ["", "times"], pairs(summary.lost)),
      table("Stores", ["", "accepted", "refused", "stale", "lost updates"],
        summary.stores.map((of) => [of.store, of.accepted, of.refused, of.stale, of.lost_updates === null ? "not recorded" : of.lost_updates])),
    ].filter(Boolean).map((one) => element("div", { class: "wide" }, one));
    if (tables.length) $("figures").append(element("h2", {}, "Figures"), element("div", {}, ...tables));
  }

  // -- lanes: several holds at once stand in rows below each other ------------------------------------

  const lockNumber = new Map(data.locks.map((lock, at) => [lock, at]));
  const hidden = new Set();     // locks that the legend switched off
  const lanes = data.lanes.map(([name, kind]) => ({ name, kind, holds: [], marks: [], faults: [], rows: 1, top: 0, height: 0 }));

  for (const [lane, start, end, lock, token, fence, until, line, how, shared] of data.holds) {
    lanes[lane].holds.push({ start, end, lock: data.locks[lock], token, fence, until, line, how, shared, row: 0 });
  }
  for (const [lane, at, kind, lock, line, words] of data.marks) {
    lanes[lane].marks.push({ at, kind, lock: lock === null ? null : data.locks[lock], line, words });
  }
  for (const [lane, start, end, op, target, line, text] of data.faults) {
    lanes[lane].faults.push({ start, end: end === null ? data.end : end, open: end === null, op, target, line, text });
  }
  for (const lane of lanes) {
    const free = [];            // when each row is free again
    for (const hold of lane.holds) {
      let row = free.findIndex((end) => end <= hold.start);
      if (row < 0) row = free.length < 6 ? free.length : 5;
      free[row] = Math.max(hold.end, free[row] ?? 0);
      hold.row = row;
    }
    lane.rows = Math.max(1, free.length);
  }
  const shown = lanes.filter((lane) => lane.kind !== "other" || lane.marks.length || lane.faults.length);
  {
    let top = AXIS;
    for (const lane of shown) {
      lane.top = top;
      lane.height = 2 * PAD + (lane.kind === "client" ? lane.rows * ROW + MARKS + (lane.faults.length ? LABELS : 0) : 16);
      top += lane.height;
    }
    lanesCanvas.height = top;
  }
  const total = shown.length ? shown[shown.length - 1].top + shown[shown.length - 1].height : AXIS;

  // -- colours ----------------------------------------------------------------------------------------

  const LIGHT = ["#3b7ddd", "#8a5cd6", "#0f9488", "#b0527a", "#5b7f1c", "#7a6a58", "#2c9cc7", "#6b6fd8"];
  const DARK = ["#5b95ea", "#a583e6", "#2fb5a8", "#cf7a9e", "#86ab46", "#a3927e", "#55b8dd", "#8d91ee"];
  let paint = {};

  function readColours() {
    const style = getComputedStyle(document.documentElement);
    for (const name of ["paper", "soft", "line", "ink", "dim", "bad", "fault", "fault-ink", "focus"]) {
      paint[name] = style.getPropertyValue(`--${name}`).trim();
    }
    paint.dark = matchMedia("(prefers-color-scheme: dark)").matches;
    paint.hatch = hatch(paint.fault, 0.55);
  }

  function hatch(colour, alpha) {
    const tile = element("canvas", { width: 8, height: 8 }), context = tile.getContext("2d");
    context.globalAlpha = alpha * 0.4;
    context.fillStyle = colour;
    context.fillRect(0, 0, 8, 8);
    context.globalAlpha = alpha;
    context.strokeStyle = colour;
    context.lineWidth = 1.6;
    for (const shift of [-8, 0, 8]) {
      context.beginPath();
      context.moveTo(shift, 8);
      context.lineTo(shift + 8, 0);
      context.stroke();
    }
    return context.createPattern(tile, "repeat");
  }

  function colourOf(lock) {
    const number = lockNumber.get(lock) ?? 0, palette = paint.dark ? DARK : LIGHT;
    return number < palette.length ? palette[number] : `hsl(${(number * 137.5) % 360} 45% ${paint.dark ? 62 : 45}%)`;
  }

  // -- the window that is looked through --------------------------------------------------------------

  const margin = Math.max(data.end * 0.01, 1e-4);
  const whole = { from: -margin, to: data.end + margin };
  const view = { ...whole };
  let width = 0, gutter = 90, chosen = null, pending = false;

  const x = (t) => gutter + (t - view.from) / (view.to - view.from) * (width - gutter);
  const timeAt = (px) => view.from + (px - gutter) / (width - gutter) * (view.to - view.from);

  function look(from, to) {
    const longest = whole.to - whole.from;
    const span = Math.min(Math.max(to - from, Math.min(MIN_SPAN, longest)), longest);
    const middle = (from + to) / 2;
    view.from = Math.min(Math.max(middle - span / 2, whole.from), whole.to - span);
    view.to = view.from + span;
    redraw();
  }

  function zoom(factor, around = (view.from + view.to) / 2) {
    look(around - (around - view.from) * factor, around + (view.to - around) * factor);
  }

  function move(share) {
    const by = (view.to - view.from) * share;
    look(view.from + by, view.to + by);
  }

  function choose(one, scroll) {
    chosen = one;
    const times = [one.at, ...one.events.map((event) => event[1])];
    const from = Math.min(...times), to = Math.max(...times);
    const around = Math.max((to - from) * 0.4, data.history.ttl * 0.15, 1e-4);
    document.querySelectorAll(".case.chosen").forEach((old) => old.classList.remove("chosen"));
    document.getElementById(`case-${one.id}`)?.classList.add("chosen");
    history.replaceState(null, "", `#${one.id}`);
    look(from - around, to + around);
    if (scroll) $("timeline").scrollIntoView({ block: "start" });
  }

  function step(by) {
    if (!violations.length) return;
    const at = chosen ? violations.indexOf(chosen) + by : by > 0 ? 0 : violations.length - 1;
    choose(violations[(at + violations.length) % violations.length], false);
  }

  function redraw() {
    if (pending) return;
    pending = true;
    requestAnimationFrame(() => { pending = false; draw(); });
  }

  function prepare(canvas, height) {
    const scale = window.devicePixelRatio || 1;
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    canvas.style.height = `${height}px`;
    const context = canvas.getContext("2d");
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    return context;
  }

  // -- drawing ----------------------------------------------------------------------------------------

  function draw() {
    width = lanesCanvas.clientWidth;
    const context = prepare(lanesCanvas, total);
    const widest = Math.max(...shown.map((lane) => context.measureText(lane.name).width), 20);
    gutter = Math.round(Math.min(widest + 18, width * 0.28));
    context.fillStyle = paint.paper;
    context.fillRect(0, 0, width, total);
    drawBackground(context);
    context.save();
    context.beginPath();
    context.rect(gutter, 0, width - gutter, total);
    context.clip();
    for (const lane of shown) drawFaults(context, lane);
    for (const lane of shown) drawHolds(context, lane);
    for (const lane of shown) drawMarks(context, lane);
    drawViolations(context);
    context.restore();
    drawOverview();
    $("where").textContent = `${seconds(Math.max(view.from, 0), view.to - view.from)} to ${seconds(Math.min(view.to, data.end), view.to - view.from)}`;
    $("before").disabled = $("next").disabled = !violations.length;
  }

  function ticks() {
    const wanted = (width - gutter) / 90, raw = (view.to - view.from) / Math.max(wanted, 1);
    const power = 10 ** Math.floor(Math.log10(raw));
    const size = [1, 2, 5, 10].map((by) => by * power).find((one) => one >= raw);
    const first = Math.ceil(Math.max(view.from, 0) / size), last = Math.floor(view.to / size);
    const digits = Math.max(0, -Math.floor(Math.log10(size) + 1e-9));
    return Array.from({ length: Math.max(0, last - first + 1) }, (_, at) => [(first + at) * size, digits]);
  }

  function drawBackground(context) {
    shown.forEach((lane, at) => {
      if (at % 2 === 0) {
        context.fillStyle = paint.soft;
        context.fillRect(0, lane.top, width, lane.height);
      }
      context.fillStyle = lane.kind === "client" ? paint.ink : paint.dim;
      context.fillText(fitted(context, lane.name, gutter - 12), 8, lane.top + lane.height / 2);
      if (at && shown[at - 1].kind !== lane.kind) {
        context.fillStyle = paint.dim;
        context.fillRect(0, lane.top - 0.5, width, 1);
      }
    });
    context.textAlign = "center";
    for (const [t, digits] of ticks()) {
      const px = x(t);
      if (px < gutter + 4) continue;
      context.fillStyle = paint.line;
      context.fillRect(px, AXIS - 5, 1, total);
      context.fillStyle = paint.dim;
      if (px > gutter + 16 && px < width - 16) context.fillText(`${t.toFixed(digits)}`, px, 9);
    }
    context.textAlign = "left";
    context.fillStyle = paint.dim;
    context.fillText("seconds", 8, 9);
  }

  function fitted(context, text, room) {
    if (context.measureText(text).width <= room) return text;
    let cut = text;
    while (cut && context.measureText(`${cut}…`).width > room) cut = cut.slice(0, -1);
    return cut ? `${cut}…` : "";
  }

  function drawFaults(context, lane) {
    const labels = [];
    for (const fault of lane.faults) {
      if (fault.end < view.from || fault.start > view.to) continue;
      const left = x(fault.start), right = Math.max(x(fault.end), left + 2);
      context.save();
      context.translate(left % 8, 0);    // the hatching moves with what it shades
      context.fillStyle = paint.hatch;
      context.fillRect(left - left % 8, lane.top + 1, right - left, lane.height - 2);
      context.restore();
      context.fillStyle = paint.fault;
      context.fillRect(left, lane.top + 1, 1.5, lane.height - 2);
      if (!fault.open) context.fillRect(right - 1, lane.top + 1, 1, lane.height - 2);
      labels.push([Math.max(left, gutter), Math.min(right, width), fault.op]);
    }
    let free = -Infinity, before = "";
    for (const [left, right, text] of labels) {
      if (text === before && left < free) continue;    // the same again, over the former one
      const from = Math.max(left, free) + 4, needs = context.measureText(text).width;
      if (right - from < needs) continue;
      const y = lane.kind === "client" ? lane.top + lane.height - PAD - 4 : lane.top + lane.height / 2;
      context.fillStyle = paint.paper;
      context.globalAlpha = 0.75;
      context.fillRect(from - 2, y - 7, needs + 4, 14);
      context.globalAlpha = 1;
      context.fillStyle = paint["fault-ink"];
      context.fillText(text, from, y);
      free = from + needs;
      before = text;
    }
  }

  const rowTop = (lane, row) => lane.top + PAD + row * ROW;
  const marksAt = (lane) => lane.kind === "client" ? lane.top + PAD + lane.rows * ROW + MARKS / 2 : lane.top + lane.height / 2;

  function drawHolds(context, lane) {
    const drawn = [];           // how far each row is painted: shorter than a pixel is painted once
    for (const hold of lane.holds) {
      if (hold.end < view.from || hold.start > view.to || hidden.has(hold.lock)) continue;
      const left = Math.max(x(hold.start), gutter - 2), right = Math.min(x(hold.end), width + 2);
      if (right - left < 1 && right <= (drawn[hold.row] ?? -1)) continue;
      const top = rowTop(lane, hold.row), wide = Math.max(right - left, 1);
      drawn[hold.row] = left + wide;
      context.fillStyle = colourOf(hold.lock);
      context.fillRect(left, top, wide, ROW - 3);
      if (hold.shared !== null) {                 // others may read beside it: the lower half is open
        const from = Math.min(Math.max(x(hold.shared), left), left + wide);
        context.fillStyle = paint.paper;
        context.fillRect(from, top + ROW - 8, left + wide - from, 3);
      }
      if (wide > 5) {
        context.fillStyle = hold.how === "lost" || hold.how === "ran out" ? paint.bad : paint.paper;
        context.fillRect(left + wide - (hold.how === "released" || hold.how === "passed on" ? 1 : 2.5), top, 2.5, ROW - 3);
      }
      if (wide > 46) {
        context.fillStyle = "#fff";
        if (paint.dark) context.fillStyle = "#0c1014";
        const text = hold.fence === null ? hold.lock : `${hold.lock} · ${hold.fence}`;
        context.fillText(fitted(context, text, wide - 10), left + 4, top + (ROW - 3) / 2 + 0.5);
      }
      if (chosen?.events.some((event) => event[0] === hold.line)) {
        context.strokeStyle = paint.bad;
        context.lineWidth = 2;
        context.strokeRect(left, top - 1, wide, ROW - 1);
      }
    }
  }

  function drawMarks(context, lane) {
    const y = marksAt(lane), last = {};
    for (const mark of lane.marks) {
      if (mark.at < view.from || mark.at > view.to || hidden.has(mark.lock)) continue;
      const px = x(mark.at);
      if (px - (last[mark.kind] ?? -9) < 1) continue;
      last[mark.kind] = px;
      drawMark(context, mark.kind, px, y, mark.lock === null ? paint.ink : colourOf(mark.lock));
    }
  }

  function drawMark(context, kind, px, y, colour) {
    context.fillStyle = context.strokeStyle = colour;
    context.lineWidth = 1.5;
    context.beginPath();
    if (kind === "use") {
      context.arc(px, y, 2.6, 0, 7);
      context.fill();
    } else if (kind === "rejected") {
      context.strokeStyle = paint.ink;
      context.moveTo(px - 3, y - 3); context.lineTo(px + 3, y + 3);
      context.moveTo(px + 3, y - 3); context.lineTo(px - 3, y + 3);
      context.stroke();
    } else if (kind === "lost") {
      context.fillStyle = paint.bad;
      context.moveTo(px, y - 5); context.lineTo(px + 4.5, y + 4); context.lineTo(px - 4.5, y + 4);
      context.fill();
    } else if (kind === "inspect") {
      context.strokeStyle = paint.dim;
      context.moveTo(px, y - 5); context.lineTo(px + 4, y); context.lineTo(px, y + 5); context.lineTo(px - 4, y);
      context.closePath();
      context.stroke();
    } else {                    // an acquire that got nothing
      context.strokeStyle = kind === "unclear" ? paint.fault : paint.dim;
      context.lineWidth = 1;
      context.moveTo(px, y - 3); context.lineTo(px, y + 3);
      context.stroke();
    }
  }

  function drawViolations(context) {
    const visible = violations.filter((one) => one === chosen || (one.at >= view.from && one.at <= view.to));
    let last = -9;
    for (const one of visible) {
      const px = x(one.at), emphasis = one === chosen;
      if (!emphasis && px - last < 1) continue;
      if (!emphasis) last = px;
      context.fillStyle = paint.bad;
      context.globalAlpha = emphasis ? 1 : visible.length < 60 ? 0.6 : 0.12;     // so many would hide everything else
      context.fillRect(px - 0.75, AXIS, emphasis ? 2 : 1.5, total);
      context.globalAlpha = 1;
      context.beginPath();
      context.moveTo(px, AXIS); context.lineTo(px - 5, AXIS - 9); context.lineTo(px + 5, AXIS - 9);
      context.fill();
      if (!emphasis) continue;
      context.strokeStyle = paint.bad;
      context.lineWidth = 2;
      for (const [, t, number] of one.events) {
        const lane = lanes[number];
        if (!shown.includes(lane)) continue;
        context.strokeRect(x(t) - 5, lane.top + 2, 10, lane.height - 4);
      }
    }
  }

  // Everything at once: of each lock, when anybody held it; below, when a fault was in force; violations in red.
  function drawOverview() {
    const height = 44, context = prepare(overview, height), end = Math.max(data.end, 1e-9);
    const at = (t) => gutter + (t - whole.from) / (whole.to - whole.from) * (width - gutter);
    context.fillStyle = paint.paper;
    context.fillRect(0, 0, width, height);
    const rows = Math.min(data.locks.length, 8) || 1, high = 26 / rows;
    for (const lane of lanes) {
      for (const hold of lane.holds) {
        if (hidden.has(hold.lock)) continue;
        context.fillStyle = colourOf(hold.lock);
        context.fillRect(at(hold.start), 2 + (lockNumber.get(hold.lock) % rows) * high, Math.max(at(hold.end) - at(hold.start), 0.6), Math.max(high - 1, 1));
      }
      context.fillStyle = paint.fault;
      for (const fault of lane.faults) context.fillRect(at(fault.start), 31, Math.max(at(Math.min(fault.end, end)) - at(fault.start), 1), 5);
    }
    context.fillStyle = paint.bad;
    for (const one of violations) context.fillRect(at(one.at) - 0.75, 0, 1.5, 42);
    context.fillStyle = paint.dim;
    context.fillText("held", 8, 14);
    context.fillText("faults", 8, 34);
    const left = at(view.from), right = at(view.to);
    context.fillStyle = paint.paper;
    context.globalAlpha = 0.7;
    context.fillRect(gutter, 0, left - gutter, height);
    context.fillRect(right, 0, width - right, height);
    context.globalAlpha = 1;
    context.strokeStyle = paint.focus;
    context.lineWidth = 1.5;
    context.strokeRect(left + 0.75, 0.75, Math.max(right - left - 1.5, 2), height - 1.5);
  }

  // -- pointing ---------------------------------------------------------------------------------------

  function found(px, py) {
    if (py < AXIS) {
      const near = violations.filter((one) => Math.abs(x(one.at) - px) < 6);
      return near.length ? { violation: near[0], title: `${near[0].ruling.name} violated`, lines: [near[0].sentence, near.length > 1 ? `and ${near.length - 1} more here` : "Click to look closer"] } : null;
    }
    const lane = shown.find((one) => py >= one.top && py < one.top + one.height);
    if (!lane || px < gutter) return null;
    const t = timeAt(px), reach = 6 / (width - gutter) * (view.to - view.from);
    let best = null, distance = 7;
    if (lane.kind !== "client" || py > lane.top + PAD + lane.rows * ROW - 2) {
      for (const mark of lane.marks) {
        if (Math.abs(mark.at - t) > reach || hidden.has(mark.lock)) continue;
        const away = Math.abs(x(mark.at) - px);
        if (away < distance) { distance = away; best = mark; }
      }
    }
    const lines = [], at = lane.faults.filter((one) => t >= one.start - reach / 3 && t <= Math.max(one.end, one.start) + reach / 3);
    const fault = at.map((one) => `Fault: ${one.op}, ${seconds(one.start, 0.5)} to ${one.open ? "the end" : seconds(one.end, 0.5)} (line ${one.line})${one.target && one.target !== lane.name ? ` on ${one.target}` : ""}`);
    if (best) return { title: `${lane.name}: ${best.kind === "unclear" ? "acquire, outcome unknown" : best.kind === "refused" ? "acquire failed" : best.kind}`, lines: [[best.lock, best.words].filter(Boolean).join(" · "), `${seconds(best.at, 0.05)} · line ${best.line}`, ...fault] };
    const hold = lane.holds.findLast((one) => t >= one.start - reach / 3 && t <= one.end + reach / 3 && !hidden.has(one.lock) &&
      py >= rowTop(lane, one.row) && py < rowTop(lane, one.row) + ROW);
    if (hold) {
      lines.push(`${seconds(hold.start, 0.05)} to ${seconds(hold.end, 0.05)}: ${seconds(hold.end - hold.start, 0.05)}, ${hold.how}`,
        `valid until ${seconds(hold.until, 0.05)}`, `fence ${hold.fence === null ? "none" : hold.fence} · token ${hold.token} · line ${hold.line}`);
      return { title: `${lane.name} ${hold.shared === null ? "holds" : hold.shared > hold.start ? "holds, then reads," : "reads"} ${hold.lock}`, lines: [...lines, ...fault] };
    }
    return fault.length ? { title: lane.name, lines: [...fault, at[0].text] } : null;
  }

  function showTip(event) {
    const box = lanesCanvas.getBoundingClientRect();
    const what = found(event.clientX - box.left, event.clientY - box.top);
    lanesCanvas.classList.toggle("pointing", Boolean(what?.violation));
    tip.hidden = !what;
    if (!what) return;
    tip.replaceChildren(element("b", {}, what.title), what.lines.join("\n"));
    const room = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - room.width - 8))}px`;
    tip.style.top = `${event.clientY + 18 + room.height > innerHeight ? Math.max(4, event.clientY - room.height - 12) : event.clientY + 18}px`;
  }

  const fingers = new Map();
  let moved = false;

  lanesCanvas.addEventListener("pointerdown", (event) => {
    fingers.set(event.pointerId, event);
    moved = false;
    lanesCanvas.setPointerCapture(event.pointerId);
  });
  lanesCanvas.addEventListener("pointermove", (event) => {
    const before = fingers.get(event.pointerId);
    if (!before) { showTip(event); return; }
    const left = lanesCanvas.getBoundingClientRect().left;
    if (fingers.size === 1) {
      const by = event.clientX - before.clientX;
      if (!moved && Math.abs(by) < 3) return;
      moved = true;
      lanesCanvas.classList.add("moving");
      const shift = by / (width - gutter) * (view.to - view.from);
      look(view.from - shift, view.to - shift);
    } else {
      const [one, two] = [...fingers.values()].map((finger) => finger.clientX);
      const other = [...fingers.values()].find((finger) => finger.pointerId !== event.pointerId).clientX;
      const was = Math.max(Math.abs(one - two), 8), is = Math.max(Math.abs(event.clientX - other), 8);
      moved = true;
      zoom(was / is, timeAt((event.clientX + other) / 2 - left));
    }
    fingers.set(event.pointerId, event);
    tip.hidden = true;
  });
  for (const name of ["pointerup", "pointercancel"]) {
    lanesCanvas.addEventListener(name, (event) => {
      const down = fingers.delete(event.pointerId);
      lanesCanvas.classList.remove("moving");
      if (!down || moved || name === "pointercancel") return;
      showTip(event);           // a tap has no hovering before it
      const box = lanesCanvas.getBoundingClientRect();
      const what = found(event.clientX - box.left, event.clientY - box.top);
      if (what?.violation) choose(what.violation, false);
    });
  }
  lanesCanvas.addEventListener("pointerleave", () => { tip.hidden = true; });
  lanesCanvas.addEventListener("dblclick", () => look(whole.from, whole.to));
  lanesCanvas.addEventListener("wheel", (event) => {
    const px = event.clientX - lanesCanvas.getBoundingClientRect().left;
    if (px < gutter) return;    // over the names it scrolls the page
    event.preventDefault();
    const lines = event.deltaMode === 1 ? 16 : 1;
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) move(event.deltaX * lines / 1000);
    else zoom(1.0018 ** (event.deltaY * lines), timeAt(px));
    tip.hidden = true;
  }, { passive: false });

  const jump = (event) => {
    if (!event.buttons) return;
    const t = whole.from + (event.clientX - overview.getBoundingClientRect().left - gutter) / (width - gutter) * (whole.to - whole.from);
    const span = view.to - view.from;
    look(t - span / 2, t + span / 2);
  };
  overview.addEventListener("pointerdown", jump);
  overview.addEventListener("pointermove", jump);

  $("all").onclick = () => look(whole.from, whole.to);
  $("in").onclick = () => zoom(0.5);
  $("out").onclick = () => zoom(2);
  $("before").onclick = () => step(-1);
  $("next").onclick = () => step(1);
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.tagName === "INPUT") return;
    const does = {
      ArrowLeft: () => move(-0.2), ArrowRight: () => move(0.2), "+": () => zoom(0.5), "=": () => zoom(0.5),
      "-": () => zoom(2), 0: () => look(whole.from, whole.to), n: () => step(1), p: () => step(-1),
    }[event.key];
    if (does) { event.preventDefault(); does(); }
  });

  // -- legend -----------------------------------------------------------------------------------------

  function legend() {
    const box = $("legend");
    box.replaceChildren();
    for (const lock of data.locks.slice(0, 24)) {
      const swatch = element("i", {}), tick = element("input", { type: "checkbox" });
      swatch.style.background = colourOf(lock);
      tick.checked = !hidden.has(lock);
      tick.onchange = () => { if (tick.checked) hidden.delete(lock); else hidden.add(lock); redraw(); };
      box.append(element("label", { title: "Show this lock" }, tick, swatch, lock));
    }
    if (data.locks.length > 24) box.append(element("span", {}, `and ${data.locks.length - 24} more locks`));
    const fault = element("i", {});
    fault.style.background = `repeating-linear-gradient(135deg, ${paint.fault} 0 2px, transparent 2px 5px)`;
    fault.style.border = `1px solid ${paint.fault}`;
    box.append(element("span", {}, fault, "fault"));
    for (const [name, what] of Object.entries(data.meanings)) box.append(element("span", {}, element("b", {}, name), what));
    if (data.holds.some((hold) => hold[8] === "lost" || hold[8] === "ran out")) {
      const end = element("i", {});
      end.style.cssText = `background: ${paint.line}; border-right: 3px solid ${paint.bad}`;
      box.append(element("span", {}, end, "a hold that was lost, or ran out"));
    }
    if (data.holds.some((hold) => hold[9] !== null)) {
      const open = element("i", {});
      open.style.cssText = `background: linear-gradient(${paint.dim} 0 60%, ${paint.paper} 60% 85%, ${paint.dim} 85%)`;
      box.append(element("span", {}, open, "readers"));
    }
    for (const [kind, words] of [["use", "use"], ["rejected", "use, refused"], ["lost", "told that it is lost"], ["refused", "acquire failed"], ["unclear", "acquire, outcome unknown"], ["inspect", "inspected"]]) {
      if (!data.marks.some((mark) => mark[2] === kind)) continue;
      const small = element("canvas", { width: 18, height: 16 });
      drawMark(small.getContext("2d"), kind, 9, 8, paint.ink);
      box.append(element("span", {}, small, words));
    }
    if (violations.length) {
      const red = element("i", {});
      red.style.cssText = `background: ${paint.bad}; width: 3px; height: 15px`;
      box.append(element("span", {}, red, "violation"));
    }
  }

  function dress() {
    readColours();
    legend();
    redraw();
  }

  outcome();
  listViolations();
  listFigures();
  lanesCanvas.setAttribute("aria-label",
    `${plural(data.holds.length, "hold")} of ${plural(data.locks.length, "lock")} on ${plural(shown.length, "lane")}; the violations and figures are in the text below`);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", dress);
  addEventListener("resize", redraw);
  addEventListener("hashchange", () => {
    const one = violations.find((other) => `#${other.id}` === location.hash);
    if (one && one !== chosen) choose(one, true);
  });
  dress();
  const linked = violations.find((one) => `#${one.id}` === location.hash);
  if (linked) choose(linked, false);
})();
