/**
 * How the agent's voice reaches the ear, over the time since the sample before.
 *
 * @typedef {object} PlayoutReport
 * @property {number} roundTripMs to the server and back
 * @property {number} jitterBufferMs how long arrived audio waited for its turn
 * @property {number} deviceMs from the browser's mixer to the loudspeaker, where the browser tells
 * @property {number} concealed share of the audio that had to be made up, 0 to 1
 * @property {number} playedS audio played since the connection began, in seconds
 */

/** Cumulative counters of `RTCPeerConnection.getStats`, as far as they are used here. */
const ZERO = { packets: 0, bufferS: 0, emitted: 0, deviceS: 0, played: 0, concealed: 0, received: 0, roundTripS: 0, rate: 48000 };

/**
 * Turns the browser's cumulative statistics into reports. One for a connection.
 */
export class PlayoutMeter {
  #last = { ...ZERO };

  /**
   * @param {RTCStatsReport} stats
   * @returns {{packets: number, report: PlayoutReport}} `packets`: of sound that have arrived so far
   */
  read(stats) {
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
      } else if (entry.type === "codec" && entry.mimeType === "audio/opus") {
        now.rate = entry.clockRate ?? ZERO.rate;
      }
    }
    const last = this.#last;
    this.#last = now;
    return {
      packets: now.packets,
      report: {
        roundTripMs: 1000 * now.roundTripS,
        jitterBufferMs: 1000 * ratio(now.bufferS - last.bufferS, now.emitted - last.emitted),
        deviceMs: 1000 * ratio(now.deviceS - last.deviceS, now.played - last.played),
        concealed: ratio(now.concealed - last.concealed, now.received - last.received),
        playedS: now.emitted / now.rate,
      },
    };
  }
}

/** @param {number} sum @param {number} count */
function ratio(sum, count) {
  return count > 0 ? sum / count : 0;
}
