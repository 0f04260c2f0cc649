export class LevelMeter {
  #analyser;
  #samples;

  /** @param {AudioContext} context @param {MediaStream} stream */
  constructor(context, stream) {
    this.#analyser = context.createAnalyser();
    this.#analyser.fftSize = 1024;
    this.#samples = new Float32Array(this.#analyser.fftSize);
    context.createMediaStreamSource(stream).connect(this.#analyser);
  }

  /** 0 (−60 dBFS, silent) to 1 (−12 dBFS, loud speech), evenly in decibels. */
  read() {
    this.#analyser.getFloatTimeDomainData(this.#samples);
    const power = this.#samples.reduce((sum, sample) => sum + sample * sample, 0) / this.#samples.length;
    return Math.min(1, Math.max(0, (10 * Math.log10(power + 1e-18) + 60) / 48));
  }
}
