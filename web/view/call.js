/** The call's own panel: the first screen, the state strip, the controls, and what is shown when a call has ended. */
import { formatClock } from "../i18n.js";
import { activityOf } from "../state.js";
import { byId, h, setText, show, whenChanged } from "./dom.js";

const ACTIVITIES = ["listening", "hearing", "thinking", "speaking", "interrupted"];
/** What typing can still do when the microphone cannot. */
const TYPING_HELPS = new Set(["insecure_page", "microphone_denied", "no_microphone", "microphone_busy"]);

function endingOf({ state, t }) {
  const { call } = state;
  if (call.phase === "failed") {
    return { title: t(`error_${call.error.code}`), detail: t(`error_${call.error.code}_do`), bad: true };
  }
  if (call.phase === "ended") {
    const title = t(call.reason === "hung_up" ? "ended_hung_up" : "ended_server");
    return { title, detail: t("ended_length", { time: formatClock(call.seconds) }), bad: false };
  }
  return null;
}

function chipsView(list, { t, onchip }) {
  list.replaceChildren(
    ...t("chips").map((words) => {
      const lang = /[\u4e00-\u9fff]/.test(words) ? "zh" : "en";
      if (!onchip) return h("li", { class: "chip", lang }, words);
      const button = h("button", { type: "button", class: "chip", lang }, words);
      button.addEventListener("click", () => onchip(words));
      return h("li", {}, button);
    }),
  );
}

function stripView() {
  const list = byId("activities");
  return whenChanged(
    ({ state, language }) => [activityOf(state), language],
    ({ state, t }) => {
      const now = activityOf(state);
      document.body.dataset.activity = now ?? "";
      const shown = now === "reconnecting" ? [now] : ACTIVITIES;
      list.replaceChildren(
        ...shown.map((name) =>
          h("li", { "data-name": name, "aria-current": name === now ? "true" : null }, t(name)),
        ),
      );
    },
  );
}

function microphonesView() {
  const select = byId("microphones");
  return whenChanged(
    ({ state, language }) => [state.microphones, state.call.microphone, language],
    ({ state, t }) => {
      const { microphones } = state;
      show(select, state.call.microphone === true && microphones.length > 1);
      const chosen = select.value;
      select.replaceChildren(
        ...microphones.map(({ deviceId, label }, index) =>
          h("option", { value: deviceId }, label || t("microphone_n", { n: index + 1 })),
        ),
      );
      if (microphones.some(({ deviceId }) => deviceId === chosen)) select.value = chosen;
    },
  );
}

function noticeText(notice, t) {
  if (notice?.kind !== "stage_failed") return notice ? t(`notice_${notice.kind}`) : "";
  return t("notice_stage_failed", { stage: stageName(t, notice.stage) });
}

export const STAGES = Object.freeze(["vad", "asr", "thinker", "talker", "codec"]);

/** A failure that no single stage can be blamed for is one of the answer as a whole. */
export function stageName(t, stage) {
  return t(STAGES.includes(stage) ? `stage_${stage}` : "stage_reply");
}

function controlsView() {
  const mute = byId("mute");
  return whenChanged(
    ({ state, language }) => [state.call, state.notice, language],
    ({ state, t }) => {
      const { call, notice } = state;
      const muted = call.phase === "live" && call.muted;
      show(mute, call.phase === "live" && call.microphone);
      mute.setAttribute("aria-pressed", String(muted));
      mute.setAttribute("aria-label", t(muted ? "unmute" : "mute"));
      mute.title = t(muted ? "unmute" : "mute");
      show(byId("hear"), call.phase === "live" && call.audioBlocked);
      show(byId("notice"), notice !== null);
      setText(byId("notice-words"), noticeText(notice, t));
    },
  );
}

function screensView(onchip) {
  const start = byId("start");
  return whenChanged(
    ({ state, language }) => [state.call.phase, state.call.error, state.captions.length > 0, language],
    (context) => {
      const { state, t } = context;
      const { phase, error } = state.call;
      const connecting = phase === "connecting";
      const ending = endingOf(context);
      document.body.dataset.phase = phase;
      const talked = state.captions.length > 0;
      show(byId("welcome"), phase !== "live");
      show(byId("talk"), phase === "live" || talked);
      show(byId("intro"), !talked);
      byId("welcome").toggleAttribute("data-compact", talked);
      show(byId("ending"), ending !== null);
      byId("ending").dataset.bad = String(ending?.bad ?? false);
      setText(byId("ending-title"), ending?.title ?? "");
      setText(byId("ending-detail"), ending?.detail ?? "");
      setText(byId("ending-cause"), error?.detail ?? "");
      show(byId("key-form"), error?.code === "unauthorized");
      show(byId("strip"), phase === "live");
      show(byId("composer"), phase === "live");
      const label = { connecting: "connecting", failed: "retry", ended: "again" }[phase] ?? "start";
      setText(byId("start-label"), t(label));
      start.toggleAttribute("data-busy", connecting);
      start.setAttribute("aria-disabled", String(connecting));
      show(byId("cancel"), connecting);
      show(byId("start-typing"), !connecting && (phase !== "failed" || TYPING_HELPS.has(error.code)));
      show(byId("welcome-chips"), !talked && error?.code !== "unauthorized");
      show(byId("licence"), !talked);
      chipsView(byId("chips-idle"), { t });
      chipsView(byId("chips-live"), { t, onchip });
    },
  );
}

export function callView({ onchip }) {
  const views = [screensView(onchip), stripView(), microphonesView(), controlsView()];
  return (context) => {
    for (const view of views) view(context);
  };
}

/** The running length of the call; the page asks once a second. */
export function showClock(state, now) {
  if (state.call.phase === "live") setText(byId("clock"), formatClock((now - state.call.since) / 1000));
}

/** The dot beside the state grows with the voice that is heard now: a caller sees that the microphone works. */
export function showLevel({ caller, agent }) {
  byId("strip").style.setProperty("--level", Math.max(caller, agent).toFixed(2));
}
