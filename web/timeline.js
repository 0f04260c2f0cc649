/** Both voices over the last seconds, drawn on a canvas: the caller above the line, the agent below it. */

export const WINDOW_MS = 20000;
const SAMPLE_MS = 50;
const QUIET = 0.12;
const CAPACITY = WINDOW_MS / SAMPLE_MS + 2;

/** A bounded record of how loud each side was; a new sample pushes out the oldest. */
export class LevelHistory {
  #samples = [];

  push(at, { caller, agent }) {
    this.#samples.push({ at, caller, agent });
    if (this.#samples.length > CAPACITY) this.#samples.shift();
  }

  clear() {
    this.#samples = [];
  }

  /** The samples of the window that ends at `now`, oldest first. */
  since(now) {
    return this.#samples.filter((sample) => sample.at >= now - WINDOW_MS && sample.at <= now);
  }
}

/** The hum of a quiet room is not drawn. */
function audible(level) {
  return level < QUIET ? 0 : level;
}

function palette(canvas) {
  const style = getComputedStyle(canvas);
  const read = (name) => style.getPropertyValue(name).trim();
  return {
    caller: read("--voice-caller"),
    agent: read("--voice-agent"),
    line: read("--line"),
    mark: read("--mark"),
    font: `600 11px ${style.fontFamily}`,
  };
}

/** Matches the canvas to its box in device pixels; returns its size in CSS pixels. */
function fit(canvas) {
  const ratio = window.devicePixelRatio || 1;
  const { clientWidth: width, clientHeight: height } = canvas;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  canvas.getContext("2d").setTransform(ratio, 0, 0, ratio, 0, 0);
  return { width, height };
}

export class Timeline {
  #canvas;
  #sampledAt = -Infinity;
  history = new LevelHistory();

  constructor(canvas) {
    this.#canvas = canvas;
  }

  /** Takes a sample when one is due. `levels` is called only then. */
  sample(now, levels) {
    if (now - this.#sampledAt < SAMPLE_MS) return;
    this.#sampledAt = now;
    this.history.push(now, levels());
  }

  /** @param {{kind: string, at: number}[]} marks @param {string} cutWords label of a barge-in mark */
  draw(now, marks, cutWords) {
    const { width, height } = fit(this.#canvas);
    if (width === 0 || height === 0) return;
    const context = this.#canvas.getContext("2d");
    const colours = palette(this.#canvas);
    const labelHeight = 16;
    const middle = labelHeight + (height - labelHeight) / 2;
    const reach = (height - labelHeight) / 2 - 2;
    const xOf = (at) => width - ((now - at) / WINDOW_MS) * width;
    context.clearRect(0, 0, width, height);
    context.fillStyle = colours.line;
    context.fillRect(0, middle - 0.5, width, 1);
    const barWidth = Math.max(1.5, (SAMPLE_MS / WINDOW_MS) * width - 1);
    for (const sample of this.history.since(now)) {
      const x = xOf(sample.at);
      const caller = audible(sample.caller) * reach;
      const agent = audible(sample.agent) * reach;
      context.fillStyle = colours.caller;
      context.fillRect(x, middle - 1 - caller, barWidth, caller);
      context.fillStyle = colours.agent;
      context.fillRect(x, middle + 1, barWidth, agent);
    }
    this.#drawMarks(context, colours, marks, { now, xOf, height, width, cutWords });
  }

  /** A reply that was cut off has a line with a label; one that held its breath a short stroke. */
  #drawMarks(context, colours, marks, { now, xOf, height, width, cutWords }) {
    context.font = colours.font;
    context.fillStyle = colours.mark;
    for (const mark of marks) {
      if (mark.at < now - WINDOW_MS) continue;
      const x = xOf(mark.at);
      if (mark.kind === "pause") context.fillRect(x - 0.75, height - 12, 1.5, 12);
      if (mark.kind !== "barge_in") continue;
      context.fillRect(x - 0.75, 14, 1.5, height - 14);
      context.textAlign = x < 40 ? "left" : x > width - 40 ? "right" : "center";
      context.fillText(cutWords, x, 10);
    }
  }
}
