/**
 * How the agent's voice reaches the ear, over the time since the sample before.
 *
 * @typedef {object} PlayoutReport
 * @property {number} roundTripMs to the server and back
 * @property {number} jitterBufferMs how long arrived audio waited for its turn
 * @property {number} deviceMs from the browser's mixer to the loudspeaker, where the browser tells
 * @property {number} delayMs from the server to the ear: half the round trip, the jitter buffer and the device
 * @property {number} concealed share of the audio that had to be made up, 0 to 1
 */

const ZERO = { packets: 0, bufferS: 0, emitted: 0, deviceS: 0, played: 0, concealed: 0, received: 0, roundTripS: 0 };

/** Turns the cumulative statistics of one connection into reports. */
export class PlayoutMeter {
  #last = ZERO;
  #jitterBufferS = 0;

  /**
   * @param {RTCStatsReport} stats
   * @param {number} outputS from mixer to loudspeaker, in seconds, where the statistics do not say
   * @returns {{packets: number, report: PlayoutReport}} `packets`: of sound that have arrived so far
   */
  read(stats, outputS) {
    const now = { ...ZERO };
    for (const entry of stats.values()) {
      if (entry.type === "inbound-rtp" && entry.kind === "audio") {
        now.packets = entry.packetsReceived ?? 0;
        now.bufferS = entry.jitterBufferDelay ?? 0;
        now.emitted = entry.jitterBufferEmittedCount ?? 0;
        now.concealed = entry.concealedSamples ?? 0;
        now.received = entry.totalSamplesReceived ?? 0;
      } else if (entry.type === "media-playout") {
        now.deviceS = entry.totalPlayoutDelay ?? 0;
        now.played = entry.totalSamplesCount ?? 0;
      } else if (entry.type === "candidate-pair" && entry.nominated) {
        now.roundTripS = entry.currentRoundTripTime ?? 0;
      }
    }
    const last = this.#last;
    this.#last = now;
    const roundTripMs = 1000 * now.roundTripS;
    // Where no sound came out meanwhile, the wait is what it was.
    this.#jitterBufferS = ratio(now.bufferS - last.bufferS, now.emitted - last.emitted, this.#jitterBufferS);
    const jitterBufferMs = 1000 * this.#jitterBufferS;
    const deviceMs = 1000 * (now.played > 0 ? ratio(now.deviceS - last.deviceS, now.played - last.played) : outputS);
    return {
      packets: now.packets,
      report: {
        roundTripMs,
        jitterBufferMs,
        deviceMs,
        delayMs: roundTripMs / 2 + jitterBufferMs + deviceMs,
        concealed: ratio(now.concealed - last.concealed, now.received - last.received),
      },
    };
  }
}

/** Decides which delays the server is told of. One for a connection. */
export class PlayoutReports {
  #told = 0;
  #toldAt = -Infinity;

  /**
   * One that differs by more than 20 ms from what the server knows, and while the agent speaks one a second.
   *
   * @param {number} delayMs from the server to the ear
   * @param {boolean} speaking
   * @param {number} now in milliseconds, on any clock
   * @returns {number | null} what to tell the server, which believes at most 5 s; null: nothing
   */
  next(delayMs, speaking, now) {
    const delay = Math.min(5000, Math.max(0, Math.round(delayMs)));
    if (Math.abs(delay - this.#told) <= 20 && !(speaking && now - this.#toldAt >= 1000)) return null;
    this.#told = delay;
    this.#toldAt = now;
    return delay;
  }
}

/** @param {number} sum @param {number} count @param {number} [otherwise] */
function ratio(sum, count, otherwise = 0) {
  return count > 0 ? sum / count : otherwise;
}
