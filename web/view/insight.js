/** Where the time of each answer went, how fast an interruption was cleaned up, and how the stages are. */
import { STAGES, stageName } from "./call.js";
import { byId, h, setText, show, whenChanged } from "./dom.js";

/** The pictures share one scale; it does not shrink below this, so that fast turns look fast. */
const SCALE_AT_LEAST_MS = 800;

function segment(step, scaleMs, startMs = null) {
  const element = h("span", { class: "segment", "data-step": step.name });
  element.style.width = `${(100 * step.ms) / scaleMs}%`;
  if (startMs !== null) element.style.marginInlineStart = `${(100 * startMs) / scaleMs}%`;
  return element;
}

/** The newest turn: one row a step, each beginning where the one before it ended. */
function waterfall(turn, scaleMs, t) {
  let startMs = 0;
  const rows = turn.steps.map((step) => {
    const row = h(
      "li",
      { class: "step" },
      h("span", { class: "step-name" }, t(step.name)),
      h("div", { class: "track", "aria-hidden": "true" }, segment(step, scaleMs, startMs)),
      h("span", { class: "step-ms" }, t("ms", { ms: Math.round(step.ms) })),
    );
    startMs += step.ms;
    return row;
  });
  return [
    h("p", { class: "turn-total" }, t("latency_turn", { ms: Math.round(turn.totalMs) })),
    h("ol", { class: "waterfall", role: "list" }, ...rows),
  ];
}

/** Turns before that, newest first: one stacked bar each. */
function earlier(turns, scaleMs, t) {
  if (turns.length === 0) return [];
  const bars = turns.map((turn) =>
    h(
      "li",
      {},
      h("div", { class: "track", "aria-hidden": "true" }, ...turn.steps.map((step) => segment(step, scaleMs))),
      h("span", { class: "step-ms" }, t("ms", { ms: Math.round(turn.totalMs) })),
    ),
  );
  return [h("h3", { class: "step-name" }, t("latency_earlier")), h("ol", { class: "earlier", role: "list" }, ...bars)];
}

function latencyView() {
  const body = byId("turns");
  return whenChanged(
    ({ state, language }) => [state.turns, language],
    ({ state, t }) => {
      show(byId("turns-empty"), state.turns.length === 0);
      const scaleMs = Math.max(SCALE_AT_LEAST_MS, ...state.turns.map((turn) => turn.totalMs));
      const [newest, ...others] = [...state.turns].reverse();
      body.replaceChildren(...(newest ? [...waterfall(newest, scaleMs, t), ...earlier(others, scaleMs, t)] : []));
    },
  );
}

function stagesView() {
  const list = byId("stages");
  return whenChanged(
    ({ state, language }) => [state.failedStages, state.cleanup, language],
    ({ state, t }) => {
      const others = Object.keys(state.failedStages).filter((stage) => !STAGES.includes(stage));
      list.replaceChildren(
        ...[...STAGES, ...others].map((stage) => {
          const failed = stage in state.failedStages;
          const words = `${stageName(t, stage)}: ${t(failed ? "stage_failed" : "stage_ok")}`;
          return h("li", { "data-failed": failed, "aria-label": words }, stageName(t, stage));
        }),
      );
      const { cleanup } = state;
      const words = cleanup ? t("cleanup", { n: cleanup.stages, ms: Math.ceil(cleanup.slowestMs) }) : "";
      setText(byId("cleanup"), words);
    },
  );
}

export function insightView() {
  const section = byId("insight");
  const views = [latencyView(), stagesView()];
  return (context) => {
    const { phase } = context.state.call;
    const used = phase === "live" || context.state.turns.length > 0;
    show(section, used);
    show(byId("how"), !used);
    for (const view of views) view(context);
  };
}
