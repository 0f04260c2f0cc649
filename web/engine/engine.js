/** The operator's page: what the engine's stages do, second by second, from GET /v1/calls/stats. */

const EVERY_MS = 1000;
const SHOWN = 60; // points of a stage's curve

const words = {
  zh: {
    title: "引擎", key: "服务器的密钥", open: "打开", thinker: "思考（文字）", talker: "说话（编码）", codec: "解码（声音）",
    calls: "通话", lag: "事件循环延迟 p99", memory: "内存", slots: "{used} / {all} 个位置在用", waiting: "排队", batch: "每步人数",
    step: "每步用时", units: "每秒产出", aborts: "打断", freed: "打断后腾出", wasted: "没听到就作废", failures: "失败",
    tokens: "{n} 词元", frames: "{n} 帧", offline: "服务器没有回应：{why}", refused: "密钥不对。", none: "这台服务器没有引擎。",
    note: "大数字是刚过去一秒里这一环节忙的时间；曲线是最近一分钟。其余数字也取自最近一秒；打断、作废和失败从启动算起。",
  },
  en: {
    title: "Engine", key: "The server's key", open: "Open", thinker: "Thinker: text", talker: "Talker: codes", codec: "Codec: sound",
    calls: "Calls", lag: "Event loop lag, p99", memory: "Memory", slots: "{used} of {all} slots in use", waiting: "Waiting",
    batch: "Replies a step", step: "A step takes", units: "Made in a second", aborts: "Aborts", freed: "Free after",
    wasted: "Made, never heard", failures: "Failures", tokens: "{n} tokens", frames: "{n} frames",
    offline: "The server does not answer: {why}", refused: "That is not the key.", none: "This server has no engine.",
    note: "The large figure is the part of the last second in which the stage worked; the curve is the last minute. The others are of the last second too; aborts, waste and failures count from the start.",
  },
}; // prettier-ignore

const $ = (selector) => document.querySelector(selector);
const t = (name, values = {}) =>
  words[language][name].replace(/\{(\w+)\}/g, (_, key) => values[key]);

let language = navigator.language.startsWith("zh") ? "zh" : "en";
let key = "";
let before = null;
let latest = null;
const curves = new Map();

/** What happened between two answers: counters become rates and means. */
function between(now, then) {
  const seconds = Math.max(1e-6, now.lived_s - then.lived_s);
  const steps = now.steps - then.steps;
  const rows = now.batch.sum - then.batch.sum;
  return {
    busy: Math.min(1, Math.max(0, (now.busy_s - then.busy_s) / seconds)),
    units: Math.max(0, (now.units - then.units) / seconds),
    batch: steps > 0 ? rows / steps : null,
    stepMs: steps > 0 ? (1000 * (now.busy_s - then.busy_s)) / steps : null,
  };
}

function element(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function facts(pairs) {
  return pairs.map(([term, value]) =>
    element("div", {}, element("dt", {}, t(term)), element("dd", {}, value)),
  );
}

const number = (value, digits = 0) =>
  value === null ? "–" : value.toLocaleString(language, { maximumFractionDigits: digits });

function curve(values) {
  const points = values.map((value, i) => `${SHOWN - values.length + i},${40 - 39 * value}`);
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", `0 0 ${SHOWN - 1} 41`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("aria-hidden", "true");
  const line = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
  line.setAttribute("points", points.join(" "));
  svg.append(line);
  return svg;
}

function card(name, now, recent) {
  const dots = Array.from({ length: now.slots }, (_, i) =>
    element("i", { class: i < now.slots_in_use ? "used" : "" }),
  );
  const slots = t("slots", { used: now.slots_in_use, all: now.slots });
  const freed = now.aborts ? `${number((1000 * now.abort_s.sum) / now.aborts, 1)} ms` : "–";
  const kind = name === "thinker" ? "tokens" : "frames";
  const busy = element("output", {}, `${number(100 * recent.busy)} %`);
  return element(
    "section",
    { class: "stage", "data-stage": name },
    element("h2", {}, t(name), busy),
    curve(curves.get(name)),
    element("div", { class: "slots", role: "img", "aria-label": slots, title: slots }, ...dots),
    element(
      "dl",
      {},
      ...facts([
        ["waiting", number(now.waiting)],
        ["batch", number(recent.batch, 1)],
        ["step", recent.stepMs === null ? "–" : `${number(recent.stepMs, 1)} ms`],
        ["units", t(kind, { n: number(recent.units) })],
        ["aborts", number(now.aborts)],
        ["freed", freed],
        ["wasted", t(kind, { n: number(now.wasted) })],
        ["failures", number(now.failures)],
      ]),
    ),
  );
}

function draw() {
  document.documentElement.lang = language;
  document.title = t("title");
  for (const node of document.querySelectorAll("[data-t]")) node.textContent = t(node.dataset.t);
  for (const button of document.querySelectorAll("[data-language]")) {
    button.setAttribute("aria-pressed", String(button.dataset.language === language));
  }
  if (latest === null) return;
  const { calls, loop_lag, process, engine = {} } = latest;
  const memory = process.rss_mib === null ? "–" : `${number(process.rss_mib)} MiB`;
  $("#server").replaceChildren(
    ...facts([
      ["calls", `${calls.active} / ${calls.limit}`],
      ["lag", `${number(loop_lag.p99_ms, 1)} ms`],
      ["memory", memory],
    ]),
  );
  const cards = Object.entries(engine).map(([name, now]) =>
    card(name, now, between(now, before.engine[name])),
  );
  $("#stages").replaceChildren(...(cards.length ? cards : [t("none")]));
}

function tell(sentence) {
  $("#trouble").hidden = sentence === "";
  $("#trouble").textContent = sentence;
}

async function look() {
  const headers = key ? { Authorization: `Bearer ${key}` } : {};
  let answer;
  try {
    answer = await fetch("../v1/calls/stats", { headers, signal: AbortSignal.timeout(5000) });
  } catch (error) {
    tell(t("offline", { why: error.message }));
    return;
  }
  $("#ask").hidden = answer.status !== 401;
  if (!answer.ok) {
    tell(answer.status !== 401 ? t("offline", { why: answer.status }) : key ? t("refused") : "");
    return;
  }
  tell("");
  before = latest;
  latest = await answer.json();
  before ??= latest;
  for (const [name, now] of Object.entries(latest.engine ?? {})) {
    const values = curves.get(name) ?? [];
    curves.set(name, [...values, between(now, before.engine[name]).busy].slice(-SHOWN));
  }
  draw();
}

async function watch() {
  for (;;) {
    if (!document.hidden) await look();
    await new Promise((resolve) => setTimeout(resolve, EVERY_MS));
  }
}

$("#ask").addEventListener("submit", (event) => {
  event.preventDefault();
  key = $("#key").value;
  look();
});
for (const button of document.querySelectorAll("[data-language]")) {
  button.addEventListener("click", () => {
    language = button.dataset.language;
    draw();
  });
}
draw();
watch();
