/**
 * Turns the browser's cumulative statistics into reports. One for a connection.
 */
export class PlayoutMeter {
    /**
     * @param {RTCStatsReport} stats
     * @returns {{packets: number, report: PlayoutReport}} `packets`: of sound that have arrived so far
     */
    read(stats: RTCStatsReport): {
        packets: number;
        report: PlayoutReport;
    };
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
     * share of the audio that had to be made up, 0 to 1
     */
    concealed: number;
    /**
     * audio played since the connection began, in seconds
     */
    playedS: number;
};
