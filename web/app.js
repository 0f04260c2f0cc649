/** Wires the page together: user actions and server events go into the state, the state goes into the views. */
import { defaultLanguage, translate } from "./i18n.js";
import { listDevices } from "./sdk/src/index.js";
import { initialState, reduce } from "./state.js";
import { Timeline } from "./timeline.js";
import { callView, showClock, showLevel } from "./view/call.js";
import { captionsView } from "./view/captions.js";
import { cartView } from "./view/cart.js";
import { byId, setText } from "./view/dom.js";
import { insightView } from "./view/insight.js";
import { menuView } from "./view/menu.js";

/** A refusal means only that nobody need be greeted: there is no greeting, or somebody has spoken already. */
const GREETING_EVENT_ID = "greeting";
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

/** A key in the address, `#key=…`, which is not part of any request; it is taken out of sight at once. */
function keyOfAddress() {
  const key = new URLSearchParams(location.hash.slice(1)).get("key");
  if (key !== null) history.replaceState(null, "", location.pathname + location.search);
  return key;
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
  /** What a server may ask for; only the page's memory holds it. @type {string | null} */
  #key = keyOfAddress();
  #views;
  timeline = new Timeline(byId("timeline"));

  /** @param {(options: import("./sdk/src/index.js").CallOptions) => import("./sdk/src/index.js").VoiceCall} makeCall */
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
      const response = await fetch(url, { headers: this.#key === null ? {} : { Authorization: `Bearer ${this.#key}` } });
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
    const iceServers = this.#state.agent?.ice_servers;
    const call = this.#makeCall({ element: byId("voice"), token: this.#key ?? undefined, iceServers });
    this.#call = call;
    // An earlier call may still report back; what it says no longer matters.
    const when = (type, handle) => call.on(type, (event) => call === this.#call && handle(event));
    when("state", (state) => this.#onCallState(state));
    when("event", (event) => {
      if (event.error?.event_id !== GREETING_EVENT_ID) this.dispatch({ type: "server.event", event });
    });
    when("audio", ({ playing }) => this.#onAudio(playing));
    when("playout", (report) => this.dispatch({ type: "playout.measured", report }));
    when("microphone_lost", () => this.dispatch({ type: "microphone.lost" }));
    await call.connect({ microphone }).catch(() => {}); // told by the call's state
  }

  /** Whether the words were sent. */
  say(words) {
    const text = words.trim();
    const id = text && this.#call ? this.#call.say(text) : null;
    if (id !== null) this.dispatch({ type: "text.sent", id, text });
    return id !== null;
  }

  hangUp() {
    const call = this.#call;
    this.#call = null;
    call?.hangUp();
    if (this.#state.call.phase !== "live") {
      this.#state = { ...initialState(), agent: this.#state.agent };
      this.#render();
      return;
    }
    this.dispatch({ type: "call.ended", reason: "hung_up" });
    requestAnimationFrame(() => byId("start").focus());
  }

  #onCallState(state) {
    if (state.status === "live") {
      const again = this.#state.call.reconnecting === true;
      this.dispatch({ type: again ? "call.resumed" : "call.live" });
      if (!again) {
        this.#tick();
        this.#askForGreeting();
      }
      if (this.#state.call.microphone) this.#listMicrophones();
    } else if (state.status === "reconnecting") {
      this.dispatch({ type: "call.reconnecting" });
    } else if (state.status === "ended") {
      this.#call = null;
      if (state.error) this.dispatch({ type: "call.failed", error: { code: state.error.code, detail: state.error.detail } });
      else this.dispatch({ type: "call.ended", reason: "server" });
      requestAnimationFrame(() => byId("ending").focus());
    }
  }

  /** A greeting that the browser held back was not heard: it is said again. */
  #onAudio(playing) {
    const late = playing && this.#state.call.audioBlocked;
    this.dispatch({ type: playing ? "audio.playing" : "audio.blocked" });
    if (late) this.#askForGreeting();
  }

  /** In the page's language, which the agent speaks until it hears another. */
  #askForGreeting() {
    this.#call?.send({ type: "session.update", session: { type: "realtime", agent: { language: this.#language } } });
    this.#call?.send({ type: "response.create", event_id: GREETING_EVENT_ID });
  }

  #toggleMute() {
    const { call } = this.#state;
    if (call.phase !== "live") return;
    this.#call.setMuted(!call.muted);
    this.dispatch({ type: "call.muted", muted: !call.muted });
  }

  async #listMicrophones() {
    const { microphones } = await listDevices();
    this.dispatch({ type: "microphones.listed", microphones: microphones.map(({ deviceId, label }) => ({ deviceId, label })) });
  }

  async #useMicrophone(deviceId) {
    try {
      await this.#call?.useMicrophone(deviceId);
    } catch (error) {
      this.dispatch({ type: "microphone.refused", detail: error.message });
    }
  }

  #listen() {
    byId("start").addEventListener("click", () => this.start({ microphone: true }));
    byId("start-typing").addEventListener("click", () => this.start({ microphone: false }));
    byId("cancel").addEventListener("click", () => this.hangUp());
    byId("hang-up").addEventListener("click", () => this.hangUp());
    byId("mute").addEventListener("click", () => this.#toggleMute());
    byId("hear").addEventListener("click", () => this.#call?.play().catch(() => {})); // it stays there, to press again
    byId("microphones").addEventListener("change", ({ target }) => this.#useMicrophone(target.value));
    navigator.mediaDevices?.addEventListener("devicechange", () => this.#call && this.#listMicrophones());
    byId("notice-dismiss").addEventListener("click", () => this.dispatch({ type: "notice.dismissed" }));
    byId("composer-form").addEventListener("submit", (event) => {
      event.preventDefault();
      if (this.say(byId("message").value)) byId("message").value = "";
    });
    byId("key-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#key = byId("key").value.trim();
      byId("key").value = "";
      this.loadAgent();
      this.start({ microphone: this.#state.call.microphone ?? true });
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
