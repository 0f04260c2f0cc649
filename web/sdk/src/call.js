import { asCallError, CallError } from "./errors.js";
import { PlayoutReports } from "./playout.js";
import { Tools } from "./tools.js";
import { WebRtcTransport } from "./transport.js";

/** @import {ClientEvent, ServerEvent} from "../types/events.js" */
/** @import {PlayoutReport} from "./playout.js" */
/** @import {Tool} from "./tools.js" */
/** @import {Transport, TransportHandlers} from "./transport.js" */

const CONNECT_MS = 15000;
const MEASURE_MS = 250;
/** A packet is sent every 20 ms, silence included: none for so long means that the way is broken. */
const LOST_MS = 2000;
/** Its refusal means only that the server kept nothing of a reply that was never heard. */
const HEARD_EVENT_ID = "heard_before_the_break";
const RECONNECT_EACH_MS = 4000;
const RECONNECT_MS = 20000;
const RECONNECT_PAUSES_MS = [0, 250, 500, 1000, 2000];

/**
 * It ends once; a new call is a new `VoiceCall`.
 *
 * @typedef {{status: "new"}
 *   | {status: "connecting"}
 *   | {status: "live"}
 *   | {status: "reconnecting", attempt: number}
 *   | {status: "ended", by: "caller" | "server" | "error", error: CallError | null}} CallState
 */

/** @typedef {Extract<CallState, {status: "ended"}>} EndedState */

/** @type {EndedState} */
const ENDED_BY_SERVER = { status: "ended", by: "server", error: null };

/**
 * @typedef {object} CallEvents
 * @property {CallState} state the call is in another state now
 * @property {ServerEvent} event any event of the server, before those who listen to its own type
 * @property {{playing: boolean}} audio `playing: false`: the browser held the sound back, nobody hears what is said; call `play` from a click
 * @property {PlayoutReport} playout how the agent's voice reaches the ear, four times a second
 * @property {{}} microphone_lost the microphone went away; `useMicrophone` takes another one
 */

/**
 * The call's own events, and each type of server event.
 *
 * @typedef {CallEvents & {[Type in ServerEvent["type"]]: Extract<ServerEvent, {type: Type}>}} Listenable
 */

/**
 * @typedef {object} CallOptions
 * @property {string} [url] where offers are posted; else `/v1/realtime/calls` of the page's own server
 * @property {string | (() => Promise<string>)} [token] the server's key or a client secret, or how to get one
 * @property {Record<string, Tool>} [tools] functions that the agent may call here, by name
 * @property {HTMLAudioElement} [element] plays the agent's voice; else one is made
 * @property {RTCIceServer[]} [iceServers] STUN and TURN servers for this side
 * @property {Transport} [transport] in place of WebRTC, for tests
 */

/**
 * One call to a voice agent.
 *
 *     const call = new VoiceCall({ url: "https://shop.example/v1/realtime/calls" });
 *     call.on("response.output_audio_transcript.delta", ({ delta }) => caption.append(delta));
 *     call.on("state", (state) => state.status === "ended" && show(state.error?.hint));
 *     await call.connect();
 *
 * Connect from a click, so that the browser allows sound. When the connection breaks, the call makes a new one that
 * takes over the state and the history of the old one; it ends by itself only when that fails.
 */
export class VoiceCall {
  #url;
  #token;
  #transport;
  #tools;
  /** @type {CallState} */
  #state = { status: "new" };
  #abort = new AbortController();
  /** @type {Map<string, Set<(event: any) => void>>} */
  #listeners = new Map();
  /** @type {string | null} */
  #id = null;
  #muted = false;
  /** Only the newest may report. */
  #attempt = 0;
  /** @type {string[] | null} Messages that came before the call was live. */
  #early = [];
  /** @type {string | null} */
  #responding = null;
  /** The reply that sounds, or may begin to. @type {{id: string, itemId: string, startedAt: number | null} | null} */
  #reply = null;
  #soundAt = 0;
  #audible = true;
  #goodbye = false;
  /** @type {ReturnType<typeof setInterval> | undefined} */
  #measuring;

  /** @param {CallOptions} [options] */
  constructor({ url = "/v1/realtime/calls", token, tools = {}, element, iceServers, transport } = {}) {
    this.#url = url;
    this.#token = token;
    this.#transport = transport ?? new WebRtcTransport({ element, iceServers });
    this.#tools = new Tools(tools, (event) => this.send(event));
  }

  /** @returns {CallState} */
  get state() {
    return this.#state;
  }

  /** The server's id; null before it is connected. */
  get id() {
    return this.#id;
  }

  /** Whether the caller's voice is held back. */
  get muted() {
    return this.#muted;
  }

  /**
   * Listens to an event of the call or of the server.
   *
   * @template {keyof Listenable} Type
   * @param {Type} type
   * @param {(event: Listenable[Type]) => void} listener
   * @returns {() => void} stops listening
   */
  on(type, listener) {
    const listeners = this.#listeners.get(type) ?? new Set();
    this.#listeners.set(type, listeners.add(listener));
    return () => listeners.delete(listener);
  }

  /**
   * Opens the microphone and connects. Resolves when the call is live.
   *
   * @param {object} [options]
   * @param {boolean} [options.microphone] false: the call sends silence, for those who type
   * @param {string} [options.deviceId] which microphone; see `listDevices`
   * @param {boolean} [options.muted] begin muted
   * @throws {CallError} its `code` says why and its `hint` what to do
   */
  async connect({ microphone = true, deviceId, muted = false } = {}) {
    if (this.#state.status !== "new") throw new Error(`connect: expected a new call, got one that is ${this.#state.status}`);
    this.#become({ status: "connecting" });
    try {
      this.setMuted(muted);
      await this.#transport.open({ microphone, deviceId });
      await this.#establish(CONNECT_MS);
    } catch (error) {
      const reason = this.#abort.signal.aborted ? new CallError("cancelled") : asCallError(error);
      this.#end({ status: "ended", by: reason.code === "cancelled" ? "caller" : "error", error: reason });
      throw reason;
    }
  }

  /**
   * Sends an event of the realtime protocol.
   *
   * @param {ClientEvent} event
   * @returns {boolean} false when there is no connection
   */
  send(event) {
    return this.#transport.send(JSON.stringify(event));
  }

  /**
   * Says something in writing and asks for a reply, cutting off the one that is being spoken.
   *
   * @param {string} text
   * @returns {string | null} the id of the new item; null when there is no connection
   */
  say(text) {
    const id = `item_${Math.random().toString(36).slice(2)}`;
    const item = { id, type: /** @type {const} */ ("message"), role: /** @type {const} */ ("user") };
    const content = [{ type: /** @type {const} */ ("input_text"), text }];
    const sent = this.send({ type: "conversation.item.create", item: { ...item, content } });
    return sent && this.send({ type: "response.create" }) ? id : null;
  }

  /** Stops the agent, as the caller's voice does. Nothing happens when it is silent. */
  interrupt() {
    if (this.#responding !== null) this.send({ type: "response.cancel" });
    this.send({ type: "output_audio_buffer.clear" });
  }

  /**
   * The call goes on and sends silence while it is muted.
   *
   * @param {boolean} muted
   */
  setMuted(muted) {
    this.#muted = muted;
    this.#transport.setMuted(muted);
  }

  /**
   * Changes to another microphone without a break.
   *
   * @param {string} [deviceId] see `listDevices`; else the system's choice
   * @throws {CallError} the microphone in use stays
   */
  async useMicrophone(deviceId) {
    await this.#transport.open({ microphone: true, deviceId });
  }

  /**
   * Changes to another loudspeaker.
   *
   * @param {string} deviceId see `listDevices`
   * @throws {CallError} unsupported, where the browser leaves this to the system
   */
  async useSpeaker(deviceId) {
    await this.#transport.useSpeaker(deviceId);
  }

  /**
   * Lets the agent's voice sound after the browser held it back. Call it from a click or a key press.
   *
   * @throws {CallError} audio_blocked
   */
  async play() {
    await this.#transport.play();
  }

  /** How loud each side is now, 0 to 1. */
  levels() {
    return this.#transport.levels();
  }

  /** Ends the call. What comes back later is ignored. */
  hangUp() {
    if (this.#state.status === "ended") return;
    this.#abort.abort();
    this.#end({ status: "ended", by: "caller", error: null }, true);
  }

  // ---- connecting

  /** @param {number} timeoutMs */
  async #establish(timeoutMs) {
    this.#attempt += 1;
    const attempt = this.#attempt;
    const current = () => attempt === this.#attempt && this.#state.status !== "ended";
    this.#early = [];
    this.#responding = null;
    this.#goodbye = false;
    this.#reply = null;
    const signal = this.#abort.signal;
    signal.throwIfAborted();
    const token = (typeof this.#token === "function" ? await this.#token() : this.#token) ?? null;
    const target = { url: this.#url, token, replaces: this.#id, timeoutMs, signal };
    const id = await this.#transport.connect(target, {
      message: (text) => current() && this.#onMessage(text),
      audio: (playing) => {
        if (!current()) return;
        this.#audible = playing;
        this.#tell("audio", { playing });
      },
      microphoneLost: () => current() && this.#tell("microphone_lost", {}),
      lost: (detail) => current() && this.#reconnect(detail),
      ended: () => current() && this.#closed(),
    });
    signal.throwIfAborted();
    this.#id = id;
    this.#tools.announce();
    this.#become({ status: "live" });
    this.#measure();
    const early = this.#early ?? [];
    this.#early = null;
    for (const text of early) this.#onMessage(text);
  }

  /** For good if the server said so, or if it has let go of the call. */
  #closed() {
    if (this.#goodbye) this.#end(ENDED_BY_SERVER);
    else void this.#reconnect("the server's side closed the connection", ENDED_BY_SERVER);
  }

  /** @param {string} detail @param {EndedState} [forgotten] how the call ends when the server no longer has it */
  async #reconnect(detail, forgotten) {
    clearInterval(this.#measuring);
    const cutOff = this.#reply;
    const soundAt = this.#soundAt;
    const deadline = performance.now() + RECONNECT_MS;
    let last = detail;
    for (let attempt = 1; performance.now() < deadline; attempt += 1) {
      this.#become({ status: "reconnecting", attempt });
      await pause(RECONNECT_PAUSES_MS[Math.min(attempt, RECONNECT_PAUSES_MS.length) - 1], this.#abort.signal);
      if (this.#abort.signal.aborted) return;
      try {
        await this.#establish(RECONNECT_EACH_MS);
        this.#tellHeard(cutOff, soundAt);
        return;
      } catch (error) {
        if (this.#abort.signal.aborted) return;
        const reason = asCallError(error);
        if (reason.code === "call_forgotten" && forgotten) {
          this.#end(forgotten);
          return;
        }
        if (["unauthorized", "server_refused", "call_forgotten"].includes(reason.code)) {
          this.#end({ status: "ended", by: "error", error: reason });
          return;
        }
        last = `${reason.code} ${reason.detail}`.trim();
      }
    }
    this.#end({ status: "ended", by: "error", error: new CallError("connection_lost", last) });
  }

  /**
   * What was sent into the broken connection was not heard, so it shall not be in the dialogue.
   *
   * @param {{itemId: string, startedAt: number | null} | null} reply @param {number} soundAt
   */
  #tellHeard(reply, soundAt) {
    if (reply === null || reply.startedAt === null) return;
    this.#truncate(reply.itemId, Math.max(0, Math.round(soundAt - reply.startedAt)));
  }

  /** @param {string} item_id @param {number} audio_end_ms */
  #truncate(item_id, audio_end_ms) {
    this.send({ type: "conversation.item.truncate", event_id: HEARD_EVENT_ID, item_id, content_index: 0, audio_end_ms });
  }

  /** Reports how the sound arrives, and notices when none does. */
  #measure() {
    clearInterval(this.#measuring);
    const attempt = this.#attempt;
    const reports = new PlayoutReports();
    let packets = -1;
    this.#soundAt = performance.now();
    const look = async () => {
      const measured = await this.#transport.measure();
      if (measured === null || attempt !== this.#attempt || this.#state.status !== "live") return;
      const now = performance.now();
      if (measured.packets !== packets) this.#soundAt = now;
      packets = measured.packets;
      this.#tell("playout", measured.report);
      const delay_ms = reports.next(measured.report.delayMs, this.#reply?.startedAt != null, now);
      if (delay_ms !== null) this.send({ type: "agent.playout.report", delay_ms });
      if (now - this.#soundAt >= LOST_MS) await this.#reconnect(`no sound from the server for ${LOST_MS / 1000} s`);
    };
    this.#measuring = setInterval(() => void look(), MEASURE_MS);
  }

  /** @param {EndedState} state @param {boolean} [sayGoodbye] */
  #end(state, sayGoodbye = ["cancelled", "ice_failed"].includes(state.error?.code ?? "")) {
    if (this.#state.status === "ended") return;
    clearInterval(this.#measuring);
    this.#transport.close({ sayGoodbye });
    this.#become(state);
  }

  // ---- events

  /** @param {string} text */
  #onMessage(text) {
    if (this.#early) {
      this.#early.push(text);
      return;
    }
    /** @type {ServerEvent} */
    let event;
    try {
      event = JSON.parse(text);
      if (typeof event.type !== "string") throw event;
      if (event.type === "error" && event.error.event_id === HEARD_EVENT_ID) return;
      this.#follow(event);
      this.#tools.onEvent(event);
    } catch {
      console.warn("not an event of the protocol:", text.slice(0, 200));
      return;
    }
    this.#tell("event", event);
    this.#tell(event.type, event);
  }

  /** @param {ServerEvent} event */
  #follow(event) {
    const reply = this.#reply;
    if (event.type === "response.created") this.#responding = event.response.id;
    else if (event.type === "response.done") this.#responding = null;
    else if (event.type === "error") this.#goodbye ||= event.error.code === "call_ended";
    else if (event.type === "response.output_item.added" && event.item.type === "message") {
      // The reply before may still sound when the next one is announced.
      if (reply?.startedAt == null) this.#reply = { id: event.response_id, itemId: event.item.id, startedAt: null };
    } else if (event.type === "output_audio_buffer.started") {
      if (reply?.id !== event.response_id) return;
      reply.startedAt = performance.now();
      if (!this.#audible) this.#truncate(reply.itemId, 0);
    } else if (event.type === "output_audio_buffer.stopped" || event.type === "output_audio_buffer.cleared") {
      this.#reply = null;
    }
  }

  /** @param {CallState} state */
  #become(state) {
    this.#state = state;
    this.#tell("state", state);
  }

  /** @param {string} type @param {unknown} event */
  #tell(type, event) {
    for (const listener of [...(this.#listeners.get(type) ?? [])]) {
      try {
        listener(event);
      } catch (error) {
        // The page's mistake: the call goes on.
        queueMicrotask(() => {
          throw error;
        });
      }
    }
  }
}

/** @param {number} ms @param {AbortSignal} signal */
function pause(ms, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      resolve(undefined);
    });
  });
}
