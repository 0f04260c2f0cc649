import { CallError } from "./errors.js";
import { LevelMeter } from "./levels.js";
import { openMicrophone } from "./microphone.js";
import { PlayoutMeter } from "./playout.js";

/** @import {CallErrorCode} from "./errors.js" */
/** @import {PlayoutReport} from "./playout.js" */

export const EVENTS_CHANNEL = "oai-events";

/** Servers read no trickled candidates, so the offer waits for its own. */
const ICE_GATHERING_MS = 1000;

/**
 * What a connection reports. After `lost` or `ended` it reports nothing more.
 *
 * @typedef {object} TransportHandlers
 * @property {(text: string) => void} message an event of the server, as JSON text
 * @property {(playing: boolean) => void} audio whether the agent's voice may sound; false: `play` from a gesture first
 * @property {() => void} microphoneLost the microphone was unplugged or taken away
 * @property {(detail: string) => void} lost the connection broke
 * @property {() => void} ended the other side closed the connection
 */

/**
 * Where to connect, and in place of which call.
 *
 * @typedef {object} Target
 * @property {string} url where the offer is posted
 * @property {string | null} token sent as a Bearer key
 * @property {string | null} replaces id of the call whose state the new connection takes over
 * @property {number} timeoutMs a connection that is not there by then has failed
 * @property {AbortSignal} signal gives up a connection that is being made
 */

/**
 * The way to a server: one object for a call, which may connect more than once. `WebRtcTransport` is the real one,
 * `FakeTransport` in `voice-agent-sdk/testing` the one for tests.
 *
 * @typedef {object} Transport
 * @property {(options: {microphone: boolean, deviceId?: string}) => Promise<void>} open
 *   Takes the microphone, or silence in its place. Called again, it takes another microphone without reconnecting.
 * @property {(target: Target, handlers: TransportHandlers) => Promise<string>} connect
 *   Resolves with the call's id when events flow both ways. An earlier connection is dropped, without a report.
 * @property {(text: string) => boolean} send an event as JSON text; false when there is no connection
 * @property {(muted: boolean) => void} setMuted
 * @property {(deviceId: string) => Promise<void>} useSpeaker
 * @property {() => Promise<void>} play lets the agent's voice sound; throws CallError audio_blocked
 * @property {() => {caller: number, agent: number}} levels how loud each side is now, 0 to 1
 * @property {() => Promise<{packets: number, report: PlayoutReport} | null>} measure
 *   null without a connection
 * @property {(options: {sayGoodbye: boolean}) => void} close frees everything; with a goodbye the server is told
 */

/** Over WebRTC: an offer by HTTP, two audio tracks, and events on a data channel. */
export class WebRtcTransport {
  #element;
  #iceServers;
  /** @type {AudioContext | null} */
  #context = null;
  /** @type {MediaStream | null} */
  #stream = null;
  #muted = false;
  /** @type {{caller: LevelMeter | null, agent: LevelMeter | null}} */
  #meters = { caller: null, agent: null };
  /** @type {Connection | null} */
  #connection = null;
  /** @type {TransportHandlers | null} */
  #handlers = null;

  /**
   * @param {object} [options]
   * @param {HTMLAudioElement} [options.element] plays the agent's voice; else one is made
   * @param {RTCIceServer[]} [options.iceServers] STUN and TURN servers of the browser's side
   */
  constructor({ element = new Audio(), iceServers = [] } = {}) {
    this.#element = element;
    this.#iceServers = iceServers;
  }

  /** @param {{microphone: boolean, deviceId?: string}} options */
  async open({ microphone, deviceId }) {
    this.#context ??= new AudioContext();
    const stream = microphone ? await openMicrophone(deviceId) : this.#context.createMediaStreamDestination().stream;
    const [track] = stream.getAudioTracks();
    track.addEventListener("ended", () => {
      if (this.#stream === stream) this.#handlers?.microphoneLost();
    });
    const before = this.#stream;
    this.#stream = stream;
    this.setMuted(this.#muted);
    this.#meters.caller = new LevelMeter(this.#context, stream);
    await this.#connection?.replaceTrack(track);
    stopTracks(before);
  }

  /** @param {Target} target @param {TransportHandlers} handlers */
  async connect(target, handlers) {
    if (!this.#stream) throw new Error("connect: expected a transport that was opened, got one that was not");
    this.#connection?.close();
    const connection = new Connection(this.#iceServers, this.#stream, (stream) => this.#onStream(stream));
    this.#connection = connection;
    this.#handlers = handlers;
    try {
      return await connection.establish(target, handlers);
    } catch (error) {
      connection.close();
      throw target.signal.aborted ? new CallError("cancelled") : error;
    }
  }

  /** @param {string} text */
  send(text) {
    return this.#connection?.send(text) ?? false;
  }

  /** @param {boolean} muted */
  setMuted(muted) {
    this.#muted = muted;
    for (const track of this.#stream?.getAudioTracks() ?? []) track.enabled = !muted;
  }

  /** @param {string} deviceId */
  async useSpeaker(deviceId) {
    if (!this.#element.setSinkId) throw new CallError("unsupported", "this browser cannot choose a speaker");
    await this.#element.setSinkId(deviceId);
  }

  async play() {
    try {
      await Promise.all([this.#element.play(), this.#context?.resume()]);
    } catch (error) {
      // Cut short by a newer stream or the end of the call.
      if (error instanceof DOMException && error.name === "AbortError") return;
      this.#handlers?.audio(false);
      throw new CallError("audio_blocked", error instanceof Error ? error.message : "");
    }
    this.#handlers?.audio(true);
  }

  levels() {
    return { caller: this.#meters.caller?.read() ?? 0, agent: this.#meters.agent?.read() ?? 0 };
  }

  async measure() {
    return (await this.#connection?.measure(this.#context?.outputLatency ?? 0)) ?? null;
  }

  /** @param {{sayGoodbye: boolean}} options */
  close({ sayGoodbye }) {
    this.#handlers = null;
    if (sayGoodbye) this.#connection?.sayGoodbye();
    this.#connection?.close();
    this.#connection = null;
    stopTracks(this.#stream);
    this.#stream = null;
    this.#element.srcObject = null;
    if (this.#context && this.#context.state !== "closed") this.#context.close();
    this.#meters = { caller: null, agent: null };
  }

  /** @param {MediaStream} stream */
  #onStream(stream) {
    if (!this.#context || this.#context.state === "closed") return;
    this.#meters.agent = new LevelMeter(this.#context, stream);
    this.#element.srcObject = stream;
    this.play().catch(() => {}); // told by the `audio` handler; the page asks for a gesture
  }
}

class Connection {
  #peer;
  #sender;
  #channel;
  #closed = false;
  #playout = new PlayoutMeter();
  /** @type {string[]} */
  #stunErrors = [];
  /** @type {{place: URL, token: string | null} | null} */
  #call = null;

  /**
   * @param {RTCIceServer[]} iceServers
   * @param {MediaStream} stream the caller's voice
   * @param {(stream: MediaStream) => void} onstream takes the agent's
   */
  constructor(iceServers, stream, onstream) {
    const peer = new RTCPeerConnection({ iceServers });
    this.#peer = peer;
    this.#sender = peer.addTransceiver(stream.getAudioTracks()[0], { direction: "sendrecv", streams: [stream] }).sender;
    this.#channel = peer.createDataChannel(EVENTS_CHANNEL);
    peer.addEventListener("track", ({ streams, track }) => {
      if (!this.#closed) onstream(streams[0] ?? new MediaStream([track]));
    });
    peer.addEventListener("icecandidateerror", (event) => {
      const { url, errorCode, errorText } = /** @type {RTCPeerConnectionIceErrorEvent} */ (event);
      this.#stunErrors.push(`${url} answered ${errorCode} ${errorText}`.trim());
    });
  }

  /**
   * @param {Target} target
   * @param {TransportHandlers} handlers
   * @returns {Promise<string>} the call's id
   */
  async establish(target, handlers) {
    const opened = this.#opened(target.signal);
    const late = new AbortController();
    const timer = setTimeout(() => late.abort(), target.timeoutMs);
    try {
      await this.#peer.setLocalDescription(await this.#peer.createOffer());
      await gathered(this.#peer);
      const { answer, place } = await this.#post(target);
      this.#call = { place, token: target.token };
      target.signal.throwIfAborted();
      await this.#peer.setRemoteDescription({ type: "answer", sdp: answer });
      await Promise.race([opened, rejectedWhen(late.signal, () => new CallError("ice_failed"))]);
      this.#watch(handlers);
      return place.pathname.split("/").at(-1) ?? "";
    } catch (error) {
      if (error instanceof CallError && error.code === "ice_failed") throw await this.#iceFailure();
      throw error;
    } finally {
      clearTimeout(timer);
    }
  }

  /** @param {string} text */
  send(text) {
    if (this.#channel.readyState !== "open") return false;
    this.#channel.send(text);
    return true;
  }

  /** @param {MediaStreamTrack} track */
  async replaceTrack(track) {
    await this.#sender.replaceTrack(track);
  }

  /** @param {number} outputS the browser's own word on the way to the loudspeaker */
  async measure(outputS) {
    return this.#closed ? null : this.#playout.read(await this.#peer.getStats(), outputS);
  }

  /** The connection's own goodbye may get lost; `keepalive` lets this outlive a page that closes. */
  sayGoodbye() {
    if (!this.#call) return;
    const { place, token } = this.#call;
    fetch(place, { method: "DELETE", headers: bearer(token), keepalive: true }).catch(() => {}); // the server notices
  }

  close() {
    this.#closed = true;
    this.#channel.close();
    this.#peer.close();
  }

  /** Resolves when the data channel opens. @param {AbortSignal} signal */
  #opened(signal) {
    const opened = new Promise((resolve, reject) => {
      this.#channel.addEventListener("open", resolve);
      signal.addEventListener("abort", () => reject(new CallError("cancelled")));
      this.#peer.addEventListener("connectionstatechange", () => {
        if (this.#peer.connectionState === "failed") reject(new CallError("ice_failed"));
      });
    });
    opened.catch(() => {}); // it may fail while the answer is still awaited, which then reports the reason
    return opened;
  }

  /** @param {Target} target */
  async #post({ url, token, replaces, signal }) {
    const target = new URL(url, globalThis.document?.baseURI);
    if (replaces !== null) target.searchParams.set("replaces", replaces);
    const headers = { "Content-Type": "application/sdp", ...bearer(token) };
    const body = this.#peer.localDescription?.sdp ?? "";
    let response;
    try {
      response = await fetch(target, { method: "POST", headers, body, signal });
    } catch (error) {
      throw new CallError("server_unreachable", error instanceof Error ? error.message : "");
    }
    if (!response.ok) throw await refusal(response, replaces !== null);
    const place = new URL(response.headers.get("Location") ?? "", target);
    return { answer: await response.text(), place };
  }

  /** @param {TransportHandlers} handlers */
  #watch(handlers) {
    const over = (/** @type {() => void} */ report) => {
      if (this.#closed) return;
      this.close();
      report();
    };
    this.#channel.addEventListener("message", ({ data }) => !this.#closed && handlers.message(String(data)));
    this.#channel.addEventListener("close", () => {
      // A broken connection closes the channel too, and says so afterwards.
      setTimeout(() => over(handlers.ended));
    });
    this.#peer.addEventListener("connectionstatechange", () => {
      if (this.#peer.connectionState === "failed") over(() => handlers.lost("the connection failed"));
    });
    if (this.#channel.readyState === "closed") over(handlers.ended);
  }

  /** Says what was tried, for somebody who knows the network. */
  async #iceFailure() {
    /** @type {Record<"local-candidate" | "remote-candidate", Set<string>>} */
    const tried = { "local-candidate": new Set(), "remote-candidate": new Set() };
    for (const entry of (await this.#peer.getStats()).values()) {
      const side = tried[/** @type {keyof typeof tried} */ (entry.type)];
      side?.add(`${entry.candidateType} ${entry.protocol} ${entry.address ?? "hidden"}`);
    }
    const told = (/** @type {Set<string>} */ side) => [...side].join(", ") || "none";
    const pairs = `tried from ${told(tried["local-candidate"])} to ${told(tried["remote-candidate"])}`;
    return new CallError("ice_failed", [pairs, ...new Set(this.#stunErrors)].join("; "));
  }
}

/** @param {string | null} token @returns {Record<string, string>} */
function bearer(token) {
  return token === null ? {} : { Authorization: `Bearer ${token}` };
}

/** @param {MediaStream | null} stream */
function stopTracks(stream) {
  for (const track of stream?.getTracks() ?? []) track.stop();
}

/** Resolves when all candidates are there, or with those found in time. @param {RTCPeerConnection} peer */
function gathered(peer) {
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      resolve(undefined);
    };
    const timer = setTimeout(done, ICE_GATHERING_MS);
    const check = () => peer.iceGatheringState === "complete" && done();
    peer.addEventListener("icegatheringstatechange", check);
    check();
  });
}

/** @param {AbortSignal} signal @param {() => Error} makeError @returns {Promise<never>} */
function rejectedWhen(signal, makeError) {
  return new Promise((_, reject) => {
    if (signal.aborted) reject(makeError());
    signal.addEventListener("abort", () => reject(makeError()));
  });
}

/** @type {Record<number, CallErrorCode>} */
const REFUSALS = { 401: "unauthorized", 403: "unauthorized", 429: "rate_limited", 503: "server_full" };

/** @param {Response} response @param {boolean} replacing */
async function refusal(response, replacing) {
  const text = await response.text();
  let detail = `HTTP ${response.status}`;
  try {
    detail = JSON.parse(text).error.message;
  } catch {
    // of a proxy on the way: its status says most
  }
  const code = replacing && response.status === 404 ? "call_forgotten" : (REFUSALS[response.status] ?? "server_refused");
  const wait = Number(response.headers.get("Retry-After"));
  return new CallError(code, detail, wait > 0 ? wait : null);
}
