// The page of `training-monitor web`: three views of one live state. Text only ever becomes text nodes and attributes.

const LEVELS = {
  error: { sign: "■", word: "error" },
  warning: { sign: "▲", word: "warning" },
  unknown: { sign: "?", word: "unknown" },
  healthy: { sign: "●", word: "ok" },
};
const WORST_FIRST = Object.keys(LEVELS);
const SILENT_SECONDS = 30; // without a word of the server
const BEHIND_SECONDS = 60; // beyond the fleet's interval
const RETRY_SECONDS = 2;
const ACT_SECONDS = 60; // a person's acts are reported at most this often
const QUEUE_SECONDS = 30;
const OLDEST_CHART_SECONDS = 30; // unless the looks are further apart
const HOUR = 3600, DAY = 24 * HOUR;
const SPANS = [["15 min", 900], ["1 h", HOUR], ["6 h", 6 * HOUR], ["24 h", DAY], ["7 d", 7 * DAY], ["31 d", 31 * DAY]];
const LEAST_SPAN = 30, MOST_SPAN = 31 * DAY;

const live = { rows: new Map(), order: [], head: null, alerts: [], times: null, heardAt: 0, isConnected: false, isOld: true, lostAt: 0 };
const table = { words: "", group: "", level: "", sort: "Health", isDown: false };
const ALERT_LEVELS = ["error", "warning"]; // worst first
const status = { alert: null, dismissed: new Set() }; // the alert in the banner, and the events of those put away
let me = null;
let view = null;

// ---------------------------------------------------------------- small things

const find = (id) => document.getElementById(id);

function make(name, properties = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (value === true) node.setAttribute(key, "");
    else if (value !== false && value != null) node.setAttribute(key, value);
  }
  node.append(...children.filter((child) => child != null));
  return node;
}

function put(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

const seconds = () => Date.now() / 1000;
const serverNow = () => (live.times ? live.times.now + (seconds() - live.heardAt) : seconds());
const CLOCK = new Intl.DateTimeFormat([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
const DATE = new Intl.DateTimeFormat([], {
  month: "short", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false,
});

const isToday = (timestamp) => new Date(timestamp * 1000).toDateString() === new Date().toDateString();

function when(timestamp) {
  if (timestamp == null) return "?";
  return (isToday(timestamp) ? CLOCK : DATE).format(timestamp * 1000);
}

const capitalized = (word) => `${word[0].toUpperCase()}${word.slice(1)}`;

function between(from, to) { // both with their day, unless both are today
  const show = isToday(from) && isToday(to) ? CLOCK : DATE;
  return `${show.format(from * 1000)} to ${show.format(to * 1000)}`;
}

function duration(length) {
  const whole = Math.max(0, Math.round(length));
  if (whole < 60) return `${whole}s`;
  if (whole < HOUR) return `${Math.floor(whole / 60)}m`;
  return whole < DAY ? `${Math.floor(whole / HOUR)}h` : `${Math.floor(whole / DAY)}d`;
}

function badge(level, text = "") {
  const { sign, word } = LEVELS[level] ?? LEVELS.unknown;
  const said = live.isOld ? `was ${word}` : word;
  const shown = live.isOld ? "unknown" : level;
  const count = text === "" ? "" : `${text} `;
  return make("span", { class: `badge ${shown}`, "data-sign": live.isOld ? "?" : sign },
    count, make("span", { class: "word" }, said));
}

function shareBar(percent) {
  if (typeof percent !== "number") return null; // not known
  const bar = make("i", { class: "share" });
  bar.style.setProperty("--share", `${Math.min(100, Math.max(0, percent))}%`);
  return bar;
}

async function ask(path, options = {}) {
  const reply = await fetch(path, options);
  const value = await reply.json().catch(() => ({ error: `the server answered with status ${reply.status}` }));
  if (reply.status === 401) location.assign("/open");
  if (!reply.ok) throw new Error(value.error);
  return value;
}

// ---------------------------------------------------------------- the live state

function connect() {
  const source = new EventSource("/events");
  source.addEventListener("state", (event) => hear(source, event));
  source.addEventListener("beat", (event) => hear(source, event));
  source.addEventListener("error", () => {
    lose();
    if (source.readyState === EventSource.CLOSED) retry(source);
  });
  const watch = setInterval(() => {
    if (source.readyState === EventSource.CLOSED) clearInterval(watch);
    else if (live.isConnected && seconds() - live.heardAt > SILENT_SECONDS) {
      lose();
      retry(source);
    }
  }, 1000);
}

function retry(source) {
  source.close();
  setTimeout(() => ask("/api/me").then(connect, () => retry(source)), RETRY_SECONDS * 1000);
}

function lose() {
  if (live.isConnected || !live.lostAt) live.lostAt = seconds();
  live.isConnected = false;
  show();
}

function hear(source, event) {
  const { times, changes } = JSON.parse(event.data);
  const wasConnected = live.isConnected;
  Object.assign(live, { times, heardAt: seconds(), isConnected: true, lostAt: 0 });
  showConnection(); // first: badges are drawn by it
  if (changes) take(changes);
  if (changes || !wasConnected) show();
}

function take(changes) {
  if (changes.whole) live.rows = new Map();
  for (const row of changes.rows) live.rows.set(row.id, row);
  if (changes.order) {
    live.order = changes.order;
    const there = new Set(changes.order);
    for (const id of live.rows.keys()) if (!there.has(id)) live.rows.delete(id);
  }
  live.head = changes.head ?? live.head;
  if (changes.alerts) {
    live.alerts = changes.alerts;
    showToast();
  }
}

function isOpen(alert) {
  return ALERT_LEVELS.includes(alert.level) && alert.ended === null && !alert.acknowledged;
}

function isBehind() {
  const interval = live.head?.interval ?? 10;
  return live.times?.made_at != null && !live.head?.paused && serverNow() - live.times.made_at > interval + BEHIND_SECONDS;
}

function show() {
  showConnection();
  view?.update();
}

function showConnection() {
  const connection = find("connection"), banner = find("banner");
  const isLate = isBehind(), isOld = !live.isConnected || isLate, hasTurned = isOld !== live.isOld;
  live.isOld = isOld;
  document.body.classList.toggle("old", isOld);
  const state = isLate ? "no new data" : live.head?.paused ? "live, refreshing is paused" : "live";
  put(connection, live.isConnected ? state : "disconnected");
  let said = "";
  if (!live.isConnected && live.lostAt) {
    said = `Disconnected since ${when(live.lostAt)}: the data shown is old. Reconnecting every ${RETRY_SECONDS} s.`;
  } else if (isLate) {
    said = `The server has produced no new data since ${when(live.times.made_at)}: the data shown is old.`;
  } else if (live.head?.error) {
    said = `The account could not be listed since ${when(live.head.stale_since)}: ${live.head.error}`;
  } else if (live.head?.lateness) {
    said = `The ${live.head.lateness}.`;
  }
  put(banner, said);
  banner.hidden = !said;
  showTitle();
  if (hasTurned) view?.update(); // old data calls nothing healthy
}

function showTitle() {
  const count = live.head?.levels?.error ?? 0;
  const alert = status.alert ? `⚠ ${status.alert.name ? `${status.alert.name}: ` : ""}${status.alert.kind} · ` : "";
  const lead = live.isConnected ? alert + (count ? `(${count}) ` : "") : "✕ disconnected · ";
  const title = `${lead}${view?.title ?? "Fleet"} · ${me?.title ?? "training-monitor"}`;
  if (document.title !== title) document.title = title;
}

function worstAlert() {
  const open = live.alerts.filter((alert) => isOpen(alert) && !status.dismissed.has(alert.event)); // newest first
  return ALERT_LEVELS.map((level) => open.find((alert) => alert.level === level)).find(Boolean) ?? null;
}

function showToast() {
  const alert = worstAlert(), before = status.alert;
  status.alert = alert;
  if (alert?.event === before?.event && alert?.text === before?.text) return;
  showTitle();
  if (!alert) return find("toast").replaceChildren();
  const close = () => {
    status.dismissed = new Set(live.alerts.filter(isOpen).map((each) => each.event));
    showToast();
  };
  const name = alert.name ? [alert.id ? make("a", { href: `#/member/${alert.id}` }, alert.name) : alert.name, ": "] : [];
  find("toast").replaceChildren(
    make("div", { class: alert.level },
      alertBadge(alert.level), make("p", {}, ...name, alert.text, make("span", { class: "dim" }, `  ${when(alert.at)}`)),
      make("button", { type: "button", onclick: close }, "Dismiss")));
}

// ---------------------------------------------------------------- the fleet

function fleetView() {
  const counts = make("div", { class: "levels", role: "group", "aria-label": "Show only members that are" });
  const sums = make("dl", { class: "tiles" });
  const words = make("input", { type: "search", autocomplete: "off", oninput: () => { table.words = words.value; update(); } });
  const group = make("select", { onchange: () => { table.group = group.value; update(); } });
  const groupLabel = make("label", {}, "Group", group);
  const count = make("p", { class: "count", role: "status" });
  const heads = make("tr");
  const body = make("tbody");
  const empty = make("p", { class: "dim" });
  const lines = new Map(); // id: its row of the table
  words.value = table.words;
  const [health, name, seen] = [{ title: "Health", meaning: "worst first" }, { title: "Name", meaning: "name, and the reason for its health" },
    { title: "Seen", meaning: "time since its last response", number: true, rank: Infinity }];
  const optional = [...me.columns.map((column, at) => ({ ...column, at })), seen]; // the lowest rank is the last to give way
  let layout = []; // the columns that are shown, from left to right
  let fitted = ""; // what the layout was chosen for
  let mostRank = Infinity; // of the values in the line for those without a column
  for (const column of [health, name, ...optional]) {
    const button = make("button", { type: "button", title: `${column.meaning}; sort by it`, onclick: () => sortBy(column.title) }, column.title);
    column.head = make("th", { scope: "col", class: classOf(column) }, button);
  }
  const grid = make("table", { class: "members" }, make("caption", { class: "unseen" }, "Members of the fleet"), make("thead", {}, heads), body);
  const frame = make("div", { class: "frame", role: "region", "aria-label": "Members", tabindex: "0" }, grid);
  new ResizeObserver(() => frame.isConnected && update()).observe(frame);
  const node = make("div", { class: "fleet" }, make("h1", { class: "unseen" }, "Fleet"), sums,
    make("div", { class: "bar" }, make("label", {}, "Search", words), groupLabel, counts, count),
    frame, empty);

  function classOf(column) {
    return column.number ? "number" : "";
  }

  function sortBy(title) {
    table.isDown = table.sort === title ? !table.isDown : false;
    table.sort = title;
    update();
  }

  function valueOf(row) {
    if (table.sort === "Name") return row.name.toLowerCase();
    if (table.sort === "Seen") return row.seen == null ? null : -row.seen;
    return row.cells[me.columns.findIndex((column) => column.title === table.sort)][1];
  }

  function compare(a, b) {
    if (table.sort === "Health") return 0; // the server's order is the worst first
    const [first, second] = [valueOf(a), valueOf(b)];
    if (first === null || second === null) return (first === null) - (second === null); // last in either direction
    const order = first < second ? -1 : first > second ? 1 : 0;
    return table.isDown ? -order : order;
  }

  function isShown(row) {
    const searched = `${row.name}\n${row.number}\n${row.level}\n${row.reason}\n${row.cells.map((cell) => cell[0]).join("\n")}`.toLowerCase();
    return (!table.group || row.groups.includes(table.group)) && (!table.level || row.level === table.level)
      && table.words.toLowerCase().split(/\s+/).every((word) => searched.includes(word));
  }

  function update() {
    showCounts();
    showSums();
    showGroups();
    for (const column of [health, name, ...optional]) {
      const isSorted = column.title === table.sort;
      if (isSorted) column.head.setAttribute("aria-sort", table.isDown ? "descending" : "ascending");
      else column.head.removeAttribute("aria-sort");
    }
    const rows = live.order.map((id) => live.rows.get(id)).filter((row) => row && isShown(row)).sort(compare);
    if (table.sort === "Health" && table.isDown) rows.reverse();
    for (const id of lines.keys()) if (!live.rows.has(id)) lines.delete(id);
    frame.hidden = !live.order.length;
    fit(rows);
    put(count, live.head === null ? "" : `${rows.length === live.order.length ? "" : `${rows.length} of `}${live.order.length} ${live.order.length === 1 ? "member" : "members"}`);
    put(empty, rows.length ? "" : live.head === null ? "Loading the members…" : live.order.length ? "Nothing matches." : "There are no members to show.");
  }

  // Show the columns that fit, the most asked first; a line of each row has the values of the others.
  function fit(rows) {
    const known = optional.filter((column) => column === seen || live.order.some((id) => live.rows.get(id)?.cells[column.at][1] != null));
    const width = frame.clientWidth; // asked once: each time after a change, it lays out all rows
    const sign = JSON.stringify([width, known.map((column) => column.title)]);
    if (sign === fitted) fill(rows, layout);
    if (sign === fitted && grid.offsetWidth <= width + 1) return;
    fitted = sign;
    mostRank = width < 600 ? me.asked : width < 1000 ? 2 * me.asked : Infinity;
    fill(rows, [health, name, ...known]);
    grid.style.width = "0"; // each column takes the least that it needs
    const widthOf = (column) => column.head.getBoundingClientRect().width;
    let room = width - widthOf(health) - widthOf(name);
    const kept = new Set();
    for (const column of [...known].sort((a, b) => a.rank - b.rank)) {
      room -= widthOf(column);
      if (room < 0) break;
      kept.add(column);
    }
    grid.style.width = "";
    fill(rows, [health, name, ...known.filter((column) => kept.has(column))]);
  }

  function fill(rows, columns) {
    if (columns.length !== layout.length || columns.some((column, at) => column !== layout[at])) {
      layout = columns;
      keepingFocus(() => heads.replaceChildren(...columns.map((column) => column.head)));
    }
    const shown = rows.map(lineOf);
    if (shown.length !== body.children.length || shown.some((line, at) => line !== body.children[at])) keepingFocus(() => body.replaceChildren(...shown));
  }

  function keepingFocus(change) {
    const focused = document.activeElement;
    change();
    if (grid.contains(focused)) focused.focus({ preventScroll: true });
  }

  function showCounts() {
    const levels = live.head?.levels ?? {};
    counts.hidden = live.head === null; // nothing is known yet, also no count of 0
    const sign = JSON.stringify([levels, table.level, live.isOld]);
    if (counts.dataset.sign === sign) return;
    counts.dataset.sign = sign;
    const focused = [...counts.children].indexOf(document.activeElement);
    counts.replaceChildren(...WORST_FIRST.map((level) => {
      const { sign, word } = LEVELS[level];
      const act = () => { table.level = table.level === level ? "" : level; update(); };
      const text = `${live.isOld ? "?" : sign} ${levels[level] ?? 0} ${live.isOld ? `was ${word}` : word}`;
      return make("button", { type: "button", class: live.isOld ? "unknown" : level, "aria-pressed": String(table.level === level), onclick: act }, text);
    }));
    counts.children[focused]?.focus();
  }

  function showSums() {
    const tiles = live.head?.tiles ?? [];
    if (sums.dataset.sign === JSON.stringify(tiles)) return;
    sums.dataset.sign = JSON.stringify(tiles);
    sums.replaceChildren(...tiles.map((tile) => make("div", { class: "tile" },
      make("dt", {}, tile.name), make("dd", {}, make("strong", {}, tile.text), make("span", { class: "note" }, tile.note)))));
  }

  function showGroups() {
    const groups = live.head?.groups ?? [];
    groupLabel.hidden = !groups.length;
    if (group.dataset.sign === JSON.stringify(groups)) return;
    group.dataset.sign = JSON.stringify(groups);
    group.replaceChildren(make("option", { value: "" }, "all"), ...groups.map((name) => make("option", { value: name }, name)));
    group.value = groups.includes(table.group) ? table.group : "";
    table.group = group.value;
  }

  function lineOf(row) {
    let line = lines.get(row.id);
    if (line?.row === row && line.isOld === live.isOld && line.layout === layout) return line.node;
    if (!line) {
      line = { node: make("tr"), link: make("a", { href: `#/member/${row.id}` }) };
      lines.set(row.id, line);
    }
    Object.assign(line, { row, isOld: live.isOld, layout });
    line.node.className = [row.level, row.stale_since == null ? "" : "stale"].join(" ").trim();
    put(line.link, row.name);
    const others = optional.filter((column) => column !== seen && !layout.includes(column) && row.cells[column.at][1] != null
      && (column.rank < mostRank || row.why.includes(column.name)));
    line.node.replaceChildren(
      make("td", {}, badge(row.level)),
      make("th", { scope: "row", class: "member-name" }, line.link, make("span", { class: "reason" }, row.reason),
        others.length ? make("span", { class: "others" }, ...others.flatMap((column) => [other(row, column), " "])) : null),
      ...layout.slice(2).map((column) => column === seen ? seenCell(row) : cell(row, column)));
    return line.node;
  }

  function other(row, column) {
    return make("span", row.why.includes(column.name) ? { class: "why" } : {}, `${column.title} `, make("b", {}, row.cells[column.at][0]));
  }

  function seenCell(row) {
    return make("td", { class: `number${row.why.includes("SEEN") ? " why" : ""}`, "data-seen": row.seen ?? "" },
      row.seen == null ? "never" : duration(serverNow() - row.seen));
  }

  function cell(row, column) {
    const isWhy = row.why.includes(column.name), text = row.cells[column.at][0];
    const node = make("td", { class: [classOf(column), isWhy ? "why" : ""].join(" ").trim() });
    const mark = isWhy ? make("span", { class: "mark" }, make("span", { class: "unseen" }, " (this is why)")) : null;
    if (column.name !== "PROGRESS") node.append(text, ...(mark ? [mark] : []));
    else {
      node.append(make("div", { class: "progress" }, make("span", {}, text, mark), shareBar(row.percent)));
    }
    return node;
  }

  function tick() {
    for (const node of body.querySelectorAll("[data-seen]")) if (node.dataset.seen) put(node, duration(serverNow() - node.dataset.seen));
  }

  return { title: "Fleet", node, update, tick };
}

// ---------------------------------------------------------------- charts

// Charts over time, of which the last `first` seconds are shown; without `first`, over all steps, without zoom.
function chartPanel(load, first = null) {
  const axis = first ? "Time" : "Step", label = first ? when : (step) => `step ${step.toLocaleString("en")}`;
  const time = { span: first, end: null }; // end null: now
  const charts = make("div", { class: "charts" });
  const said = make("p", { class: "dim", role: "status" });
  const buttons = SPANS.map(([name, span]) => make("button", { type: "button", onclick: () => go(span, null) }, name));
  const bar = first && make("div", { class: "bar", role: "group", "aria-label": "Time that the charts show" }, ...buttons,
    ...[["+", "Zoom in"], ["-", "Zoom out"], ["ArrowLeft", "Earlier"], ["ArrowRight", "Later"]].map(([key, name]) =>
      make("button", { type: "button", onclick: () => press(key) }, name)));
  const figures = new Map();
  let asked = 0, askedWidth = 0, loadedAt = 0;

  const window_ = () => {
    const end = time.end ?? serverNow();
    return { begin: end - time.span, end };
  };

  function go(span, end) {
    time.span = Math.min(MOST_SPAN, Math.max(LEAST_SPAN, span));
    time.end = end == null || end >= serverNow() ? null : end;
    refresh();
  }

  function press(key) {
    const { begin, end } = window_(), middle = (begin + end) / 2, span = time.span;
    if (key === "+" || key === "=") go(span / 2, time.end === null ? null : middle + span / 4);
    else if (key === "-") go(span * 2, time.end === null ? null : middle + span);
    else if (key === "ArrowLeft") go(span, end - span / 2);
    else if (key === "ArrowRight") go(span, end + span / 2);
    else if (key === "0") go(first, null);
    else return false;
    return true;
  }

  async function refresh() {
    const number = ++asked, { begin, end } = window_();
    loadedAt = seconds();
    buttons.forEach((button, at) => button.setAttribute("aria-pressed", String(time.end === null && time.span === SPANS[at][1])));
    const width = askedWidth = wanted();
    const offset = -new Date(end * 1000).getTimezoneOffset() * 60;
    try {
      const found = await load({ begin, end, width, offset });
      if (number !== asked) return; // a later question was asked meanwhile
      const shown = found.charts;
      for (const chart of shown) draw(chart, found);
      for (const [field, { node }] of figures) {
        if (found.problem || shown.some((chart) => chart.field === field)) continue;
        node.remove();
        figures.delete(field);
      }
      const [from, to] = first ? [begin, end] : [found.begin, found.end];
      const span = from == null ? "" : first ? between(from, to) : `${label(from)} to ${label(to)}`;
      const unknown = found.unknown?.length ? `unknown: ${found.unknown.join(", ")}` : "";
      put(said, [span, found.samples == null ? "" : `${found.samples} samples`, unknown, found.problem ?? ""].filter(Boolean).join(" · "));
    } catch (error) {
      if (number === asked) put(said, `The charts could not be loaded: ${error.message}`);
    }
  }

  function wanted() {
    const plot = charts.querySelector(".plot");
    return Math.round(Math.min(2400, Math.max(240, plot?.clientWidth || 640)));
  }

  new ResizeObserver(() => {
    if (charts.isConnected && askedWidth && Math.abs(askedWidth - wanted()) > 8) refresh();
  }).observe(charts);

  function draw(chart, { begin, end }) {
    let figure = figures.get(chart.field);
    if (!figure) {
      figure = makeFigure(chart);
      figures.set(chart.field, figure);
      charts.append(figure.node);
    }
    figure.shown = { begin, end, points: chart.points };
    const parsed = new DOMParser().parseFromString(chart.svg, "image/svg+xml").documentElement;
    figure.svg = document.importNode(parsed, true);
    figure.plot.replaceChildren(figure.svg, figure.selection);
    const last = chart.points.at(-1);
    figure.idle = `${label(last[0])} · ${last[1]}`;
    put(figure.readout, figure.idle);
    if (figure.details.open) fill(figure);
  }

  function makeFigure(chart) {
    const readout = make("span", { class: "readout" });
    const selection = make("div", { class: "selection", hidden: true });
    const keys = { tabindex: "0", role: "group",
      "aria-label": `${chart.title} chart: plus and minus zoom, arrow keys move in time, 0 resets` };
    const plot = make("div", { class: "plot", ...(first ? keys : {}) });
    const body = make("tbody");
    const details = make("details", {}, make("summary", {}, `Numbers: ${chart.title}`),
      make("div", { class: "frame", tabindex: "0", role: "region", "aria-label": `Numbers: ${chart.title}` },
        make("table", {}, make("thead", {}, make("tr", {}, make("th", { scope: "col" }, axis), make("th", { scope: "col", class: "number" }, chart.title))), body)));
    const node = make("figure", { "data-field": chart.field }, make("figcaption", {}, make("span", {}, chart.title), readout), plot, details);
    const figure = { node, plot, readout, selection, details, body };
    details.addEventListener("toggle", () => details.open && fill(figure));
    plot.addEventListener("keydown", (event) => {
      if (first && !event.ctrlKey && !event.metaKey && !event.altKey && press(event.key)) event.preventDefault();
    });
    listen(figure);
    return figure;
  }

  function fill(figure) {
    const rows = [...figure.shown.points].reverse();
    figure.body.replaceChildren(...rows.map(([at, text]) => make("tr", {}, make("td", {}, label(at)), make("td", { class: "number" }, text))));
  }

  function listen(figure) {
    const { plot, selection, readout } = figure;
    let from = null;
    const share = (event) => {
      const box = figure.svg.getBoundingClientRect(), scale = box.width / figure.svg.viewBox.baseVal.width;
      const left = figure.svg.dataset.left * scale, right = figure.svg.dataset.right * scale;
      return Math.min(1, Math.max(0, (event.clientX - box.left - left) / (right - left)));
    };
    const timeAt = (part) => figure.shown.begin + part * (figure.shown.end - figure.shown.begin);
    const place = (part) => {
      const scale = figure.svg.getBoundingClientRect().width / figure.svg.viewBox.baseVal.width;
      return (Number(figure.svg.dataset.left) + part * (figure.svg.dataset.right - figure.svg.dataset.left)) * scale;
    };
    plot.addEventListener("pointerdown", (event) => {
      if (first && event.button === 0 && figure.svg) from = share(event);
    });
    plot.addEventListener("pointermove", (event) => {
      if (!figure.svg) return;
      const here = share(event);
      if (from !== null) {
        if (!plot.hasPointerCapture(event.pointerId)) plot.setPointerCapture(event.pointerId);
        selection.hidden = false;
        selection.style.left = `${place(Math.min(from, here))}px`;
        selection.style.width = `${place(Math.max(from, here)) - place(Math.min(from, here))}px`;
      }
      const near = figure.shown.points.reduce((best, point) =>
        !best || Math.abs(point[0] - timeAt(here)) < Math.abs(best[0] - timeAt(here)) ? point : best, null);
      if (near) put(readout, `${label(near[0])} · ${near[1]}`);
    });
    plot.addEventListener("pointerup", (event) => {
      const begin = from;
      from = null;
      selection.hidden = true;
      if (begin === null) return;
      const [first_, last] = [begin, share(event)].sort((a, b) => a - b);
      if (last - first_ > 0.02) go(timeAt(last) - timeAt(first_), timeAt(last));
    });
    plot.addEventListener("pointercancel", () => { from = null; selection.hidden = true; });
    plot.addEventListener("pointerleave", () => from === null && put(readout, figure.idle ?? ""));
  }

  const isFollowing = () => time.end === null && live.isConnected;
  const pause = () => Math.max(10, live.head?.interval ?? 10, first ? Math.min(OLDEST_CHART_SECONDS, time.span / 360) : OLDEST_CHART_SECONDS);
  const tick = () => { if (isFollowing() && seconds() - loadedAt >= pause()) refresh(); };
  return { node: make("div", {}, bar, charts, said), refresh, tick };
}

const query = (values) => new URLSearchParams(values).toString();

// ---------------------------------------------------------------- one member

function memberView(id) {
  const name = make("h1", {}, "Member"), health = make("span"), acts = make("div", { class: "acts" });
  const words = make("dl", { class: "words" }), facts = make("dl", { class: "facts" });
  const log = make("pre", { tabindex: "0", "aria-label": "End of the log" });
  const attempts = make("div"), gpus = make("dl", { class: "gpus" });
  const gpuSection = make("section", { hidden: true }, make("h2", {}, "GPUs"), gpus);
  const panel = chartPanel((window_) => ask(`/api/series?${query({ id, ...window_ })}`), HOUR);
  const run = runSection(id);
  const problem = make("p", { class: "dim", role: "status" }, "Loading.");
  const sections = make("div", { hidden: true }, words,
    make("h2", {}, "Charts"), panel.node, run.node, gpuSection, make("h2", {}, "Facts"), facts, attempts,
    make("h2", {}, "End of the log"), make("div", { class: "frame" }, log));
  const node = make("div", {}, make("p", {}, make("a", { href: "#/" }, "← Fleet")),
    make("div", { class: "title" }, name, health, acts), problem, sections);
  const page = { title: "Member", node, update, tick: () => { if (!sections.hidden) { panel.tick(); run.tick(); } } };
  let loaded = null, loading = false;

  function update() {
    const row = live.rows.get(id);
    if (row) {
      page.title = row.name;
      put(name, row.name);
    }
    health.replaceChildren(row ? badge(row.level) : sections.hidden ? "" : badge("unknown"));
    if (live.head !== null && !row) put(problem, `This member is not in the fleet${sections.hidden ? "." : " any more: what is shown is old."}`);
    if (row && row !== loaded && !loading && live.isConnected) load(row);
  }

  async function load(row) {
    loading = true;
    try {
      const found = await ask(`/api/member?${query({ id })}`);
      fill(found);
      put(problem, "");
      if (sections.hidden) {
        sections.hidden = false;
        panel.refresh();
        run.refresh();
      }
    } catch (error) {
      put(problem, `This member could not be loaded: ${error.message}`);
    }
    loaded = row;
    loading = false;
    if (view === page && live.rows.get(id) !== loaded) setTimeout(update, 1000);
  }

  function fill(found) {
    words.replaceChildren(...found.words.flatMap(([title, text, level]) => [make("dt", {}, title), make("dd", { class: level }, text)]));
    facts.replaceChildren(...found.facts.map(([title, text]) => make("div", {}, make("dt", {}, title), make("dd", {}, text))));
    gpuSection.hidden = !found.gpus.length;
    gpus.replaceChildren(...found.gpus.map((gpu) => make("div", {}, make("dt", {}, gpu.name), make("dd", {}, shareBar(gpu.percent), gpu.text))));
    put(log, found.log.join("\n") || "no log lines yet");
    if (acts.children.length !== Object.keys(found.acts).length) {
      acts.replaceChildren(...Object.keys(found.acts).map((action) => make("button", { type: "button", class: "danger",
        onclick: () => confirm(id, action) }, `${capitalized(action)} …`)));
    }
    showAttempts(found);
  }

  function showAttempts({ attempts: run, attempts_problem: failed }) {
    const sign = JSON.stringify([run, failed]);
    if (attempts.dataset.sign === sign) return;
    attempts.dataset.sign = sign;
    if (failed) attempts.replaceChildren(make("h2", {}, "Attempts"), make("p", {}, `The attempts cannot be read: ${failed}`));
    else if (!run) attempts.replaceChildren();
    else {
      const goodput = run.goodput == null ? "goodput unknown" : `goodput ${(100 * run.goodput).toFixed(1)} %`;
      const lost = run.steps_lost == null ? "steps lost: unknown" : `${run.steps_lost} steps lost`;
      const sums = [`${run.finished ? "finished" : "supervised"} for ${run.duration}`, `${run.retries} restarts`, goodput, lost];
      attempts.replaceChildren(...[make("h2", {}, "Attempts"),
        make("p", {}, sums.join(" · "), run.reason ? ` · ${run.reason}` : ""),
        run.badput.length ? make("p", { class: "dim" }, `the remaining time went into: ${run.badput.map(([cause, time]) => `${cause} ${time}`).join(", ")}`) : null,
        run.avoid.length ? make("p", {}, `nodes to avoid: ${run.avoid.join(", ")}`) : null,
        ...[...run.attempts].reverse().map(attempt)].filter(Boolean));
    }
  }

  function attempt(each) {
    const told = [
      `${when(each.started_at)} to ${each.ended_at == null ? "now" : when(each.ended_at)}`, `steps ${each.steps}`,
      each.lost ? `${each.lost} steps lost` : "", each.checkpoint ? `from ${each.checkpoint}` : "from the beginning",
    ];
    return make("section", { class: "attempt", "aria-label": `Attempt ${each.number}` },
      make("h3", {}, `Attempt ${each.number}`, make("span", {}, each.status), make("span", { class: "dim" }, each.job)),
      make("p", { class: "dim" }, told.filter(Boolean).join(" · ")),
      each.reason ? make("p", {}, each.reason) : null,
      each.explanation ? make("p", {}, make("strong", {}, "Why: "), each.explanation) : null,
      each.nodes ? make("p", { class: "dim" }, `nodes: ${each.nodes}`) : null,
      each.evidence ? make("p", {}, `evidence (${each.failure}): `, make("code", {}, each.evidence)) : null,
      ...each.refused.map((text) => make("p", {}, `checkpoint refused: ${text}`)));
  }

  return page;
}

// What the training reports of itself in the progress file of its TrainingMonitor; hidden where it writes none.
function runSection(id) {
  const attempt = make("p"), settings = make("dl", { class: "facts" });
  const given = make("div", { hidden: true }, make("h2", {}, "Settings"), settings);
  const panel = chartPanel(async ({ width }) => {
    const { run, problem } = await ask(`/api/run?${query({ id, width })}`);
    if (run) fill(run);
    node.hidden = !run && !problem;
    return { charts: [], begin: null, ...run, problem: problem && `The progress file cannot be read now: ${problem}` };
  });
  const node = make("section", { hidden: true, "aria-label": "Metrics by step" }, make("h2", {}, "Metrics by step"), attempt, panel.node, given);

  function fill(run) {
    put(attempt, `Attempt ${run.attempt}`);
    given.hidden = !run.settings.length;
    settings.replaceChildren(...run.settings.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))));
  }

  return { node, refresh: panel.refresh, tick: panel.tick };
}

async function post(path, value) {
  const headers = { "Content-Type": "application/json", "X-Forgery-Token": me.forgery_token };
  return ask(path, { method: "POST", headers, body: JSON.stringify(value) });
}

// The session ends 12 hours after a person's last click or key; what the page asks for by itself does not count.
function reportActs() {
  let reported = performance.now(); // loading the page counted
  const report = (event) => {
    if (!event.isTrusted || performance.now() - reported < ACT_SECONDS * 1000) return;
    reported = performance.now();
    post("/api/note-act", {}).catch(() => {});
  };
  for (const kind of ["pointerdown", "keydown"]) addEventListener(kind, report, { capture: true, passive: true });
}

async function confirm(id, action) {
  const here = view;
  const { acts, name } = await ask(`/api/member?${query({ id })}`);
  if (view !== here) return;
  const { means, phrase } = acts[action];
  const typed = make("input", { type: "text", autocomplete: "off", autocapitalize: "off", spellcheck: "false",
    oninput: () => { sure.disabled = typed.value !== phrase; } });
  const sure = make("button", { type: "submit", class: "danger", disabled: true }, capitalized(action));
  const said = make("p", { role: "alert" });
  const send = async (event) => {
    event.preventDefault();
    sure.disabled = true;
    try {
      await post("/api/act", { action, id, phrase: typed.value });
      dialog.close();
    } catch (error) {
      put(said, error.message);
    }
  };
  const dialog = make("dialog", { "aria-labelledby": "confirm-title", onclose: () => dialog.remove() },
    make("form", { onsubmit: send }, make("h2", { id: "confirm-title" }, `${capitalized(action)} ${name}?`), make("p", {}, means),
      make("label", {}, "Type ", make("strong", {}, phrase), " to confirm", typed), said,
      make("div", { class: "bar" }, make("button", { type: "button", onclick: () => dialog.close() }, "Cancel"), sure)));
  document.body.append(dialog);
  dialog.showModal();
  typed.focus();
}

// ---------------------------------------------------------------- alerts and cost

function alertsView() {
  const body = make("tbody"), empty = make("p", { class: "dim" });
  const heads = ["Time", "Level", "Member", "Alert"].map((title) => make("th", { scope: "col" }, title));
  const frame = make("div", { class: "frame" }, make("table", {}, make("thead", {}, make("tr", {}, ...heads)), body));
  const node = make("div", {}, make("h1", {}, "Alerts"), make("p", { class: "dim" }, "The last 200 since the server started, newest first."), frame, empty);
  let shown = null;

  function update() {
    if (shown === live.alerts) return;
    shown = live.alerts;
    body.replaceChildren(...live.alerts.map((alert) => make("tr", { class: alert.level },
      make("td", { class: "when" }, when(alert.at)),
      make("td", {}, alert.level === "info" ? "info" : alertBadge(alert.level)),
      make("th", { scope: "row" }, alert.id ? make("a", { href: `#/member/${alert.id}` }, alert.name) : alert.name || "the fleet"),
      make("td", {}, make("div", { class: "alert" },
        make("span", {}, alert.text, make("span", { class: "dim" }, ` (${stateOf(alert)})`)), acknowledgeButton(alert))))));
    frame.hidden = !live.alerts.length;
    put(empty, live.alerts.length ? "" : "Nothing happened so far.");
  }

  return { title: "Alerts", node, update };
}

function acknowledgeButton(alert) {
  if (!me.allow_write || !isOpen(alert)) return null;
  const label = `Acknowledge ${alert.name || "the fleet"}: ${alert.text}`;
  const button = make("button", { type: "button", class: "small", "aria-label": label }, "Acknowledge");
  button.onclick = async () => {
    button.disabled = true;
    try {
      await post("/api/acknowledge", { event: alert.event });
      find("main").focus({ preventScroll: true });
    } catch (error) {
      put(button, error.message);
    }
  };
  return button;
}

function stateOf(alert) {
  const over = alert.ended === null ? "" : `, ended at ${when(alert.ended)}`;
  return `${alert.kind}${over}${alert.acknowledged ? ", acknowledged" : ""}`;
}

function alertBadge(level) {
  const { sign, word } = LEVELS[level]; // an alert stays what it was, also while disconnected
  return make("span", { class: `badge ${level}`, "data-sign": sign }, make("span", { class: "word" }, word));
}

function costView() {
  const body = make("tbody"), said = make("p", { class: "dim" });
  const panel = chartPanel(async (window_) => {
    const found = await ask(`/api/cost?${query(window_)}`);
    fill(found);
    return found;
  }, DAY);
  const heads = ["Price per hour", "Spent", "Next 24 h", "To completion"].map((title) => make("th", { scope: "col", class: "number" }, title));
  const days = make("tbody"), byDay = make("section", { hidden: true }, make("h2", {}, "By day"),
    make("div", { class: "frame narrow" }, make("table", {}, make("thead", {}, make("tr", {},
      make("th", { scope: "col" }, "Day"), make("th", { scope: "col", class: "number" }, "Spent"))), days)),
    make("p", { class: "dim" }, "+: at least this much; not every machine was watched all the time."));
  const byMember = make("section", { hidden: true }, make("h2", {}, "By member"),
    make("div", { class: "frame", tabindex: "0", role: "region", "aria-label": "Cost by member" },
      make("table", {}, make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "Member"), ...heads)), body)));
  const node = make("div", {}, make("h1", {}, "Cost"), panel.node, byMember, said, byDay);

  function fill(found) {
    body.replaceChildren(...found.members.map((member) => make("tr", {},
      make("th", { scope: "row" }, make("a", { href: `#/member/${member.id}` }, member.name)),
      ...[member.price, member.spent, member.ahead, member.to_completion].map((text) => make("td", { class: "number" }, text)))));
    byMember.hidden = !found.members.length;
    byDay.hidden = !found.days.length;
    days.replaceChildren(...found.days.map(([day, text]) => make("tr", {}, make("th", { scope: "row" }, day), make("td", { class: "number" }, text))));
    const left = found.left_out ? ` The ${found.left_out} cheapest members are left out.` : "";
    const hidden = found.hidden ? ` Instances that are not shown (${found.hidden} per hour) are not counted here.` : "";
    put(said, found.members.length ? `Dollars; - is unknown.${left}${hidden}` : "No member has a known price.");
  }

  panel.refresh();
  return { title: "Cost", node, update: () => {}, tick: panel.tick };
}

// The trainings for rented machines; its link is there where the queue holds some.
function queueView() {
  const columns = [["Step", "step", "number"], ["Spent", "spent", "number"], ["Budget", "budget", "number"], ["Age", "age", "number"],
    ["GPU", "gpu", ""], ["Machine", "machine", ""]]; // heading, name in the answer, class
  const heads = make("tr"), body = make("tbody"), said = make("p", { class: "dim", role: "status" });
  const frame = make("div", { class: "frame", tabindex: "0", role: "region", "aria-label": "Queue", hidden: true }, make("table", { class: "queue" }, make("thead", {}, heads), body));
  const node = make("div", {}, make("h1", {}, "Queue"), make("p", { class: "dim" }, "Trainings for rented machines, the newest first."), frame, said);
  let loadedAt = 0;

  async function load() {
    loadedAt = seconds();
    try {
      const { jobs, damaged } = await ask("/api/queue");
      const shown = columns.filter(([, name]) => jobs.some((job) => job[name] !== null));
      frame.hidden = !jobs.length;
      heads.replaceChildren(...["Job", "State"].map((title) => make("th", { scope: "col" }, title)),
        ...shown.map(([title, , kind]) => make("th", { scope: "col", class: `extra ${kind}` }, title)));
      body.replaceChildren(...jobs.map((job) => make("tr", { class: `${job.level} ${job.over ? "stale" : ""}`.trim() },
        make("th", { scope: "row" }, job.id, ...job.notes.map((note) => make("span", { class: "reason" }, note)),
          make("span", { class: "others" }, ...shown.filter(([, name]) => job[name] !== null).map(([title, name]) => make("span", {}, `${title} `, make("b", {}, job[name]))))),
        make("td", { class: job.level === "error" ? "why" : "" }, job.state),
        ...shown.map(([, name, kind]) => make("td", { class: `extra ${kind}` }, job[name] ?? "-")))));
      put(said, [jobs.length ? "" : "The queue is empty.", damaged.length ? `Not readable: ${damaged.join(", ")}.` : ""].join(" ").trim());
    } catch (error) {
      put(said, error.message);
    }
  }

  load();
  return { title: "Queue", node, update: () => {}, tick: () => { if (live.isConnected && seconds() - loadedAt >= QUEUE_SECONDS) load(); } };
}

async function showQueueLink() {
  const { jobs, damaged } = await ask("/api/queue").catch(() => ({ jobs: [], damaged: [] }));
  find("queue-link").hidden = !jobs.length && !damaged.length;
}

// ---------------------------------------------------------------- views by address

function route() {
  const hash = location.hash;
  if (hash === "#main") return find("main").focus();
  const member = /^#\/member\/([0-9a-f]{16})$/.exec(hash);
  const open = hash === "#/alerts" ? alertsView : hash === "#/cost" ? costView : hash === "#/queue" ? queueView : member ? () => memberView(member[1]) : fleetView;
  for (const dialog of document.querySelectorAll("dialog")) dialog.close(); // it belongs to the view before
  const isFirst = view === null;
  const main = find("main");
  view = open();
  main.replaceChildren(view.node);
  view.update();
  for (const link of document.querySelectorAll("nav a")) {
    const here = link.getAttribute("href") === (open === fleetView ? "#/" : hash);
    if (here) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  showTitle();
  if (!isFirst) {
    main.focus({ preventScroll: true });
    scrollTo(0, 0);
  }
}

async function begin() {
  try {
    me = await ask("/api/me");
  } catch (error) {
    put(find("connection"), "disconnected");
    return setTimeout(begin, RETRY_SECONDS * 1000);
  }
  put(find("brand"), me.title);
  addEventListener("hashchange", route);
  reportActs();
  connect();
  route();
  showQueueLink();
  setInterval(() => { showConnection(); view?.tick?.(); }, 1000);
}

begin();
