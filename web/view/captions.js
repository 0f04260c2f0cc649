/**
 * The conversation in words. Caller words firm up as they are recognised; agent words are grey until they were heard
 * and struck out when they never were. A separate hidden line tells screen readers each finished sentence once.
 */
import { activityOf, splitHeard } from "../state.js";
import { byId, h, setText, show, whenChanged } from "./dom.js";

const NEAR_END_PX = 60;
/** While one of these holds, an utterance without words yet is shown as one that is coming. */
const AWAITING_WORDS = new Set(["hearing", "interrupted", "thinking"]);

function build(caption) {
  const heard = h("span", { class: "heard" });
  const pause = h("span", { class: "pause", "aria-hidden": "true", hidden: true }, "…");
  const unheard = h("span", { class: "unheard" });
  const speaker = h("span", { class: "caption-speaker" });
  const words = h("p", { class: "caption-words", dir: "auto" }, heard, pause, unheard);
  const element = h("li", { class: `caption ${caption.speaker}` }, speaker, words);
  return { element, heard, pause, unheard, speaker };
}

function fill(row, caption, paused, t) {
  const isCaller = caption.speaker === "caller";
  const { heard, unheard } = isCaller ? { heard: caption.text, unheard: "" } : splitHeard(caption);
  setText(row.heard, heard);
  setText(row.unheard, unheard);
  show(row.pause, paused);
  const note = isCaller ? caption.typed && t("typed") : caption.cut && t("cut");
  setText(row.speaker, [t(isCaller ? "you" : "agent"), note].filter(Boolean).join(" · "));
  row.element.toggleAttribute("data-partial", isCaller && !caption.final);
  row.element.toggleAttribute("data-waiting", isCaller && caption.text === "");
  row.element.toggleAttribute("data-cut", !isCaller && caption.cut);
}

/** The newest sentence that will not change any more. */
function lastFinished(captions) {
  return captions.findLast((caption) =>
    caption.speaker === "caller" ? caption.final : caption.cut || caption.heardAll,
  );
}

export function captionsView() {
  const scroller = byId("captions");
  const list = byId("caption-list");
  const empty = byId("captions-empty");
  const announcer = byId("announcer");
  const rows = new Map();
  let following = true;
  const follow = () => {
    if (following) scroller.scrollTop = scroller.scrollHeight;
  };
  scroller.addEventListener("scroll", () => {
    following = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < NEAR_END_PX;
  });
  new ResizeObserver(follow).observe(scroller);
  return whenChanged(
    ({ state, language }) => [state.captions, activityOf(state), state.call.paused, state.call.microphone, language],
    ({ state, t }) => {
      const listening = AWAITING_WORDS.has(activityOf(state));
      for (const [id, row] of rows) {
        if (state.captions.some((caption) => caption.id === id)) continue;
        row.element.remove();
        rows.delete(id);
      }
      state.captions.forEach((caption, index) => {
        if (!rows.has(caption.id)) rows.set(caption.id, build(caption));
        const row = rows.get(caption.id);
        if (list.children[index] !== row.element) list.insertBefore(row.element, list.children[index] ?? null);
        fill(row, caption, Boolean(state.call.paused) && caption.responseId === state.call.playing, t);
        show(row.element, caption.text !== "" || (caption.speaker === "caller" && listening));
      });
      show(empty, state.captions.length === 0);
      setText(byId("captions-empty-words"), t(state.call.microphone === false ? "empty_talk_typed" : "empty_talk"));
      follow();
      const said = lastFinished(state.captions);
      if (said) {
        const words = said.speaker === "agent" ? splitHeard(said).heard : said.text;
        setText(announcer, `${t(said.speaker === "agent" ? "agent" : "you")}: ${words}`);
      }
    },
  );
}
