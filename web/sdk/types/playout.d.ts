/** Turns the cumulative statistics of one connection into reports. */
export class PlayoutMeter {
    /**
     * @param {RTCStatsReport} stats
     * @param {number} outputS from mixer to loudspeaker, in seconds, where the statistics do not say
     * @returns {{packets: number, report: PlayoutReport}} `packets`: of sound that have arrived so far
     */
    read(stats: RTCStatsReport, outputS: number): {
        packets: number;
        report: PlayoutReport;
    };
    #private;
}
/** Decides which delays the server is told of. One for a connection. */
export class PlayoutReports {
    /**
     * One that differs by more than 20 ms from what the server knows, and while the agent speaks one a second.
     *
     * @param {number} delayMs from the server to the ear
     * @param {boolean} speaking
     * @param {number} now in milliseconds, on any clock
     * @returns {number | null} what to tell the server, which believes at most 5 s; null: nothing
     */
    next(delayMs: number, speaking: boolean, now: number): number | null;
    #private;
}
/**
 * How the agent's voice reaches the ear, over the time since the sample before.
 */
export type PlayoutReport = {
    /**
     * to the server and back
     */
    roundTripMs: number;
    /**
     * how long arrived audio waited for its turn
     */
    jitterBufferMs: number;
    /**
     * from the browser's mixer to the loudspeaker, where the browser tells
     */
    deviceMs: number;
    /**
     * from the server to the ear: half the round trip, the jitter buffer and the device
     */
    delayMs: number;
    /**
     * share of the audio that had to be made up, 0 to 1
     */
    concealed: number;
};
