/** Wires the page together: user actions and server events go into the state, the state goes into the views. */
import { CallError } from "./call.js";
import { defaultLanguage, translate } from "./i18n.js";
import { initialState, reduce } from "./state.js";
import { Timeline } from "./timeline.js";
import { callView, showClock, showLevel } from "./view/call.js";
import { captionsView } from "./view/captions.js";
import { cartView } from "./view/cart.js";
import { byId, setText } from "./view/dom.js";
import { insightView } from "./view/insight.js";
import { menuView } from "./view/menu.js";

const LANGUAGE_KEY = "voice-agent.language";
const FRAME_MS = 66;
/** With reduced motion the timeline moves in calm steps. */
const CALM_FRAME_MS = 500;

function storedLanguage() {
  try {
    return localStorage.getItem(LANGUAGE_KEY);
  } catch {
    return null; // storage is switched off in this browser
  }
}

function storeLanguage(language) {
  try {
    localStorage.setItem(LANGUAGE_KEY, language);
  } catch {
    // storage is switched off in this browser; the choice lasts as long as the page
  }
}

export class Page {
  #state = initialState();
  #language = defaultLanguage(navigator.language);
  #makeCall;
  #call = null;
  #renderAsked = false;
  #views;
  timeline = new Timeline(byId("timeline"));

  /** @param {(handlers: object) => object} makeCall makes a `RealtimeCall`, or something with its interface */
  constructor(makeCall) {
    this.#makeCall = makeCall;
    this.#views = [
      callView({ onchip: (words) => this.say(words) }),
      captionsView(),
      cartView(),
      menuView(),
      insightView(),
    ];
    this.#listen();
    this.setLanguage(storedLanguage() ?? this.#language);
  }

  get state() {
    return this.#state;
  }

  dispatch(action) {
    this.#state = reduce(this.#state, { at: performance.now(), ...action });
    if (this.#renderAsked) return;
    this.#renderAsked = true;
    requestAnimationFrame(() => this.#render());
  }

  async loadAgent(url = "/v1/agent") {
    try {
      const response = await fetch(url);
      if (!response.ok) throw new Error(`GET ${url}: expected 200, got ${response.status}`);
      this.dispatch({ type: "agent.loaded", agent: await response.json() });
    } catch (error) {
      console.warn("no menu:", error.message);
    }
  }

  setLanguage(language) {
    this.#language = language === "zh" ? "zh" : "en";
    storeLanguage(this.#language);
    document.documentElement.lang = this.#language === "zh" ? "zh-CN" : "en";
    document.title = this.#t("title");
    for (const element of document.querySelectorAll("[data-i18n]")) setText(element, this.#t(element.dataset.i18n));
    for (const element of document.querySelectorAll("[data-i18n-label]")) {
      element.setAttribute("aria-label", this.#t(element.dataset.i18nLabel));
    }
    byId("message").placeholder = this.#t("message_placeholder");
    for (const button of document.querySelectorAll("[data-language]")) {
      button.setAttribute("aria-pressed", String(button.dataset.language === this.#language));
    }
    this.#render();
  }

  async start({ microphone }) {
    if (this.#state.call.phase === "connecting" || this.#state.call.phase === "live") return;
    this.timeline.history.clear();
    this.dispatch({ type: "call.connecting", microphone });
    // An earlier call may still report back; what it says no longer matters.
    const call = this.#makeCall({
      onevent: (event) => call === this.#call && this.dispatch({ type: "server.event", event }),
      onaudio: (stream) => call === this.#call && this.#attach(stream),
      onended: (error) => call === this.#call && this.#ended(error),
      onmicrophonelost: () => call === this.#call && this.dispatch({ type: "microphone.lost" }),
    });
    this.#call = call;
    try {
      await call.connect({ microphone });
    } catch (error) {
      if (call !== this.#call) return;
      this.#call = null;
      if (!(error instanceof CallError)) throw error;
      this.dispatch({ type: "call.failed", error: { code: error.code, detail: error.detail } });
      requestAnimationFrame(() => byId("ending").focus());
      return;
    }
    if (call !== this.#call) return;
    this.dispatch({ type: "call.live" });
    this.#tick();
  }

  say(words) {
    const text = words.trim();
    if (!text || !this.#call) return;
    const id = this.#call.say(text);
    if (id !== null) this.dispatch({ type: "text.sent", id, text });
  }

  hangUp() {
    const call = this.#call;
    this.#call = null;
    call?.hangUp();
    byId("voice").srcObject = null;
    if (this.#state.call.phase !== "live") {
      this.#state = { ...initialState(), agent: this.#state.agent };
      this.#render();
      return;
    }
    this.dispatch({ type: "call.ended", reason: "hung_up" });
    requestAnimationFrame(() => byId("start").focus());
  }

  #ended(error) {
    this.#call = null;
    byId("voice").srcObject = null;
    if (error) this.dispatch({ type: "call.failed", error: { code: error.code, detail: error.detail } });
    else this.dispatch({ type: "call.ended", reason: "server" });
  }

  #attach(stream) {
    byId("voice").srcObject = stream;
    this.#play();
  }

  #play() {
    byId("voice")
      .play()
      .then(
        () => this.dispatch({ type: "audio.playing" }),
        (error) => {
          if (error.name === "NotAllowedError") this.dispatch({ type: "audio.blocked" });
        },
      );
  }

  #toggleMute() {
    const { call } = this.#state;
    if (call.phase !== "live") return;
    this.#call.setMuted(!call.muted);
    this.dispatch({ type: "call.muted", muted: !call.muted });
  }

  #listen() {
    byId("start").addEventListener("click", () => this.start({ microphone: true }));
    byId("start-typing").addEventListener("click", () => this.start({ microphone: false }));
    byId("cancel").addEventListener("click", () => this.hangUp());
    byId("hang-up").addEventListener("click", () => this.hangUp());
    byId("mute").addEventListener("click", () => this.#toggleMute());
    byId("hear").addEventListener("click", () => this.#play());
    byId("notice-dismiss").addEventListener("click", () => this.dispatch({ type: "notice.dismissed" }));
    byId("composer-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.say(byId("message").value);
      byId("message").value = "";
    });
    for (const button of document.querySelectorAll("[data-language]")) {
      button.addEventListener("click", () => this.setLanguage(button.dataset.language));
    }
    window.addEventListener("pagehide", () => this.#call?.hangUp());
  }

  #t = (key, values) => translate(this.#language, key, values);

  #render() {
    this.#renderAsked = false;
    const context = { state: this.#state, language: this.#language, t: this.#t };
    for (const view of this.#views) view(context);
  }

  /** Runs while the call is live: the clock, the levels and the timeline. */
  #tick() {
    const calm = window.matchMedia("(prefers-reduced-motion: reduce)");
    let drawnAt = -Infinity;
    const frame = () => {
      if (this.#state.call.phase !== "live" || !this.#call) return;
      const now = performance.now();
      this.timeline.sample(now, () => this.#call.levels());
      if (now - drawnAt >= (calm.matches ? CALM_FRAME_MS : FRAME_MS)) {
        drawnAt = now;
        this.timeline.draw(now, this.#state.marks, this.#t("barge_in"));
        showClock(this.#state, now);
        if (!calm.matches) showLevel(this.#call.levels());
      }
      requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
  }
}
