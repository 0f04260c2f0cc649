/**
 * One call over WebRTC: microphone and speaker as audio tracks, events as JSON on the data channel `oai-events`.
 *
 *     const call = new RealtimeCall({ onevent, onaudio, onended });
 *     await call.connect();            // resolves when events can flow both ways; rejects with a CallError
 *     call.say("one oolong tea");      // typed instead of spoken
 *     call.hangUp();
 *
 * An instance is for one call. Everything that comes back after `hangUp` is ignored.
 */

export const EVENTS_CHANNEL = "oai-events";

/** A server sends no trickled candidates and reads none, so the offer waits for its own, but not for long. */
const ICE_GATHERING_MS = 1000;
const CONNECT_MS = 15000;
/** A dip in the network repairs itself; silence longer than this is a lost call. */
const LOST_MS = 6000;

/**
 * Why a call could not start, or ended on its own. `code` is one of:
 * insecure_page, microphone_denied, no_microphone, microphone_busy, server_unreachable, server_full,
 * server_refused, ice_failed, connection_lost, cancelled.
 */
export class CallError extends Error {
  constructor(code, detail = "") {
    super(detail ? `${code}: ${detail}` : code);
    this.name = "CallError";
    this.code = code;
    this.detail = detail;
  }
}

const MICROPHONE_ERRORS = {
  NotAllowedError: "microphone_denied",
  SecurityError: "microphone_denied",
  NotFoundError: "no_microphone",
  OverconstrainedError: "no_microphone",
  NotReadableError: "microphone_busy",
  AbortError: "microphone_busy",
};

export class RealtimeCall {
  #url;
  #handlers;
  #abort = new AbortController();
  #state = "new"; // "new" | "connecting" | "live" | "ended"
  #peer = null;
  #channel = null;
  #stream = null;
  #audio = null; // AudioContext, for levels and for the silent track of a call without a microphone
  #meters = { caller: null, agent: null };
  #lostTimer = 0;
  #early = []; // events that came before `connect` had returned; null from then on
  #location = null;

  /**
   * @param {object} options
   * @param {string} [options.url] where the SDP offer is posted
   * @param {(event: object) => void} options.onevent a server event
   * @param {(stream: MediaStream) => void} options.onaudio the agent's voice; the page attaches and plays it
   * @param {(error: CallError | null) => void} options.onended a live call ended; null: the server closed it
   * @param {() => void} [options.onmicrophonelost] the microphone went away during the call
   */
  constructor({ url = "/v1/realtime/calls", ...handlers }) {
    this.#url = url;
    this.#handlers = handlers;
  }

  /** @param {{microphone?: boolean, deviceId?: string}} [options] without a microphone the call sends silence */
  async connect({ microphone = true, deviceId } = {}) {
    if (this.#state !== "new") throw new Error(`connect: expected a new call, got one that is ${this.#state}`);
    this.#state = "connecting";
    try {
      this.#audio = new AudioContext();
      this.#stream = microphone ? await openMicrophone(deviceId) : silence(this.#audio);
      this.#checkWanted();
      const opened = this.#buildPeer();
      await this.#peer.setLocalDescription(await this.#peer.createOffer());
      await gathered(this.#peer, ICE_GATHERING_MS);
      const answer = await this.#exchange(this.#peer.localDescription.sdp);
      this.#checkWanted();
      await this.#peer.setRemoteDescription({ type: "answer", sdp: answer });
      await within(CONNECT_MS, opened, () => new CallError("ice_failed", "no connection after 15 s"));
      this.#checkWanted();
    } catch (error) {
      const reason = this.#abort.signal.aborted ? new CallError("cancelled") : asCallError(error);
      this.#release();
      throw reason;
    }
    this.#state = "live";
    this.#watch();
    setTimeout(() => {
      const early = this.#early;
      this.#early = null;
      for (const event of early) this.#deliver(event);
    });
  }

  /** Sends a client event; false when the channel is not open. */
  send(event) {
    if (this.#channel?.readyState !== "open") return false;
    this.#channel.send(JSON.stringify(event));
    return true;
  }

  /** Says something in writing and asks for a reply. Returns the id of the new item, or null when it was not sent. */
  say(text) {
    const id = `item_${crypto.getRandomValues(new Uint32Array(2)).join("")}`;
    const item = { id, type: "message", role: "user", content: [{ type: "input_text", text }] };
    return this.send({ type: "conversation.item.create", item }) && this.send({ type: "response.create" }) ? id : null;
  }

  setMuted(muted) {
    for (const track of this.#stream?.getAudioTracks() ?? []) track.enabled = !muted;
  }

  /** How loud each side is now, 0 to 1. */
  levels() {
    return { caller: loudness(this.#meters.caller), agent: loudness(this.#meters.agent) };
  }

  hangUp() {
    this.#abort.abort();
    this.#release();
    if (!this.#location) return;
    // The connection's own goodbye is one packet and may get lost; `keepalive` lets this outlive a page that is closing.
    const place = new URL(this.#location, new URL(this.#url, document.baseURI));
    fetch(place, { method: "DELETE", keepalive: true }).catch(() => {});
  }

  #checkWanted() {
    if (this.#abort.signal.aborted) throw new CallError("cancelled");
  }

  /** Builds the peer connection; the promise resolves when the data channel opens and rejects when ICE fails. */
  #buildPeer() {
    const peer = new RTCPeerConnection({ iceServers: [] });
    this.#peer = peer;
    for (const track of this.#stream.getAudioTracks()) {
      peer.addTransceiver(track, { direction: "sendrecv", streams: [this.#stream] });
      track.addEventListener("ended", () => this.#handlers.onmicrophonelost?.());
    }
    this.#meters.caller = meter(this.#audio, this.#stream);
    peer.addEventListener("track", ({ streams, track }) => {
      const stream = streams[0] ?? new MediaStream([track]);
      this.#meters.agent = meter(this.#audio, stream);
      this.#handlers.onaudio(stream);
    });
    const channel = peer.createDataChannel(EVENTS_CHANNEL);
    this.#channel = channel;
    channel.addEventListener("message", ({ data }) => this.#onMessage(data));
    const opened = new Promise((resolve, reject) => {
      channel.addEventListener("open", resolve);
      this.#abort.signal.addEventListener("abort", () => reject(new CallError("cancelled")));
      peer.addEventListener("connectionstatechange", () => {
        if (peer.connectionState === "failed") reject(new CallError("ice_failed"));
      });
    });
    opened.catch(() => {}); // it may fail while the answer is still awaited, which then reports the reason
    return opened;
  }

  #onMessage(data) {
    if (this.#state === "ended") return;
    let event;
    try {
      event = JSON.parse(data);
    } catch {
      console.warn("a server event is not JSON:", String(data).slice(0, 200));
      return;
    }
    if (this.#early) this.#early.push(event);
    else this.#deliver(event);
  }

  #deliver(event) {
    if (this.#state === "live") this.#handlers.onevent(event);
  }

  async #exchange(sdp) {
    let response;
    try {
      response = await fetch(this.#url, {
        method: "POST",
        headers: { "Content-Type": "application/sdp" },
        body: sdp,
        signal: this.#abort.signal,
      });
    } catch (error) {
      throw new CallError("server_unreachable", error.message);
    }
    if (response.ok) {
      this.#location = response.headers.get("Location");
      return response.text();
    }
    const detail = await errorMessage(response);
    throw new CallError(response.status === 503 ? "server_full" : "server_refused", detail);
  }

  /** Watches a live call for the ways it can end without `hangUp`. */
  #watch() {
    const peer = this.#peer;
    this.#channel.addEventListener("close", () => this.#endedOnItsOwn(null));
    peer.addEventListener("connectionstatechange", () => {
      clearTimeout(this.#lostTimer);
      if (peer.connectionState === "failed") this.#endedOnItsOwn(new CallError("connection_lost"));
      if (peer.connectionState === "closed") this.#endedOnItsOwn(null);
      if (peer.connectionState === "disconnected") {
        this.#lostTimer = setTimeout(() => this.#endedOnItsOwn(new CallError("connection_lost")), LOST_MS);
      }
    });
    if (this.#channel.readyState === "closed") this.#endedOnItsOwn(null);
  }

  #endedOnItsOwn(error) {
    if (this.#state !== "live") return;
    this.#release();
    this.#handlers.onended(error);
  }

  #release() {
    this.#state = "ended";
    clearTimeout(this.#lostTimer);
    for (const track of this.#stream?.getTracks() ?? []) track.stop();
    this.#channel?.close();
    this.#peer?.close();
    if (this.#audio && this.#audio.state !== "closed") this.#audio.close();
    this.#meters = { caller: null, agent: null };
  }
}

async function openMicrophone(deviceId) {
  if (!window.isSecureContext || !navigator.mediaDevices?.getUserMedia) throw new CallError("insecure_page");
  const audio = { echoCancellation: true, noiseSuppression: true, autoGainControl: true };
  if (deviceId) audio.deviceId = { exact: deviceId };
  try {
    return await navigator.mediaDevices.getUserMedia({ audio });
  } catch (error) {
    throw new CallError(MICROPHONE_ERRORS[error.name] ?? "no_microphone", error.message);
  }
}

function silence(context) {
  return context.createMediaStreamDestination().stream;
}

/** Resolves when the offer has all its candidates, or after `boundMs` with those found so far. */
function gathered(peer, boundMs) {
  if (peer.iceGatheringState === "complete") return Promise.resolve();
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, boundMs);
    peer.addEventListener("icegatheringstatechange", () => {
      if (peer.iceGatheringState !== "complete") return;
      clearTimeout(timer);
      resolve();
    });
  });
}

function within(ms, promise, makeError) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(makeError()), ms);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

async function errorMessage(response) {
  const body = await response.text();
  try {
    const parsed = JSON.parse(body);
    return parsed.error?.message ?? parsed.detail ?? "";
  } catch {
    return `HTTP ${response.status}`;
  }
}

function asCallError(error) {
  return error instanceof CallError ? error : new CallError("server_refused", error.message);
}

function meter(context, stream) {
  const analyser = context.createAnalyser();
  analyser.fftSize = 1024;
  context.createMediaStreamSource(stream).connect(analyser);
  return { analyser, samples: new Float32Array(analyser.fftSize) };
}

function loudness(source) {
  if (!source) return 0;
  source.analyser.getFloatTimeDomainData(source.samples);
  let sum = 0;
  for (const sample of source.samples) sum += sample * sample;
  const rms = Math.sqrt(sum / source.samples.length);
  // From -60 dBFS (silent) to -12 dBFS (loud speech), evenly in decibels.
  return Math.min(1, Math.max(0, (20 * Math.log10(rms + 1e-9) + 60) / 48));
}
