/**
 * A transport without a browser or a server, for tests of what is built on the SDK.
 *
 * @module
 */
import { CallError } from "./errors.js";

/** @import {ServerEvent} from "../types/events.js" */
/** @import {CallErrorCode} from "./errors.js" */
/** @import {PlayoutReport} from "./playout.js" */
/** @import {Target, TransportHandlers} from "./transport.js" */

/**
 * Takes the place of WebRTC: a test plays the server, and looks at what the call sent.
 *
 *     const server = new FakeTransport();
 *     const call = new VoiceCall({ transport: server });
 *     await call.connect();
 *     server.emit({ type: "output_audio_buffer.started", response_id: "r1" });
 *     server.sent; // the client events so far, parsed
 */
export class FakeTransport {
  /** Client events in the order in which they were sent. @type {Array<Record<string, any>>} */
  sent = [];
  /** The targets of all connections so far. @type {Array<Target>} */
  targets = [];
  /** How the microphone was opened last. @type {{microphone: boolean, deviceId?: string} | null} */
  opened = null;
  muted = false;
  /** @type {string | null} */
  speaker = null;
  connected = false;
  /** Whether the server was told of the end. */
  saidGoodbye = false;
  /** What `levels` gives. */
  level = { caller: 0, agent: 0 };
  /** No sound arrives any more, as when the network is gone; the call notices after two seconds. */
  silent = false;
  /** @type {PlayoutReport} */
  report = { roundTripMs: 0, jitterBufferMs: 0, deviceMs: 0, delayMs: 0, concealed: 0 };
  /** Whether the browser lets sound out at once. */
  autoplay = true;
  /** @type {Array<CallErrorCode>} */
  #failures = [];
  #pending = false;
  #packets = 0;
  /** @type {TransportHandlers | null} */
  #handlers = null;

  /** The next step, opening the microphone or connecting, fails with this code. Several fail one after the other.
   * @param {CallErrorCode} code */
  failNext(code) {
    this.#failures.push(code);
  }

  /** Connections stay in the making until they are given up. */
  neverConnect() {
    this.#pending = true;
  }

  /** The server sends an event. @param {ServerEvent | Record<string, unknown>} event */
  emit(event) {
    this.#handlers?.message(JSON.stringify(event));
  }

  /** The connection breaks. */
  lose() {
    const handlers = this.#drop();
    handlers?.lost("the test broke the connection");
  }

  /** The server says that it ends the call, and closes the connection. */
  end() {
    const error = { type: "server_error", code: "call_ended", message: "the test ended the call" };
    this.emit({ type: "error", error: { ...error, param: null, event_id: null } });
    const handlers = this.#drop();
    handlers?.ended();
  }

  /** The microphone is unplugged. */
  loseMicrophone() {
    this.#handlers?.microphoneLost();
  }

  /** @param {{microphone: boolean, deviceId?: string}} options */
  async open(options) {
    this.#failIfAsked();
    this.opened = options;
  }

  /**
   * @param {Target} target
   * @param {TransportHandlers} handlers
   */
  async connect(target, handlers) {
    this.#drop();
    this.targets.push(target);
    if (this.#pending) {
      await new Promise((_, reject) => {
        target.signal.addEventListener("abort", () => reject(new CallError("cancelled")));
      });
    }
    this.#failIfAsked();
    this.#handlers = handlers;
    this.connected = true;
    queueMicrotask(() => handlers.audio(this.autoplay));
    return `call_${this.targets.length}`;
  }

  /** @param {string} text */
  send(text) {
    if (this.connected) this.sent.push(JSON.parse(text));
    return this.connected;
  }

  /** @param {boolean} muted */
  setMuted(muted) {
    this.muted = muted;
  }

  /** @param {string} deviceId */
  async useSpeaker(deviceId) {
    this.speaker = deviceId;
  }

  async play() {
    this.autoplay = true;
    this.#handlers?.audio(true);
  }

  levels() {
    return this.level;
  }

  async measure() {
    if (!this.silent) this.#packets += 1;
    return this.connected ? { packets: this.#packets, report: this.report } : null;
  }

  /** @param {{sayGoodbye: boolean}} options */
  close({ sayGoodbye }) {
    this.saidGoodbye = sayGoodbye;
    this.#drop();
  }

  #drop() {
    const handlers = this.#handlers;
    this.#handlers = null;
    this.connected = false;
    return handlers;
  }

  #failIfAsked() {
    const code = this.#failures.shift();
    if (code) throw new CallError(code);
  }
}
