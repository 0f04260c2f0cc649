export class LevelMeter {
    /** @param {AudioContext} context @param {MediaStream} stream */
    constructor(context: AudioContext, stream: MediaStream);
    /** 0 (−60 dBFS, silent) to 1 (−12 dBFS, loud speech), evenly in decibels. */
    read(): number;
    #private;
}
