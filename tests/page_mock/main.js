/** Starts the page on fake calls; `window.page`, `window.fake` and `window.play` are for the test to drive. */
import { Page } from "/app.js";
import { FakeTransport } from "/sdk/src/fake.js";
import { VoiceCall } from "/sdk/src/index.js";

window.failNext = null;
window.page = new Page((options) => {
  window.fake = new FakeTransport();
  if (window.failNext === "pending") window.fake.neverConnect();
  else if (window.failNext) window.fake.failNext(window.failNext);
  return new VoiceCall({ ...options, transport: window.fake });
});

/** Plays a recording at once, its last event being now, and paints the voices it would have had. */
window.play = (recording) => {
  const now = performance.now();
  const shift = now - recording.at(-1).at;
  for (const { at, event } of recording) window.page.dispatch({ type: "server.event", event, at: at + shift });
  paintVoices(recording, shift);
  window.page.timeline.draw(now, window.page.state.marks, document.documentElement.lang === "en" ? "cut in" : "打断");
};

function paintVoices(recording, shift) {
  const { history } = window.page.timeline;
  const speaking = { caller: false, agent: false };
  let next = 0;
  for (let at = recording[0].at; at < recording.at(-1).at; at += 50) {
    for (; next < recording.length && recording[next].at <= at; next += 1) {
      const { type } = recording[next].event;
      if (type === "input_audio_buffer.speech_started") speaking.caller = true;
      if (type === "input_audio_buffer.speech_stopped") speaking.caller = false;
      if (type === "output_audio_buffer.started") speaking.agent = true;
      if (type === "output_audio_buffer.stopped" || type === "output_audio_buffer.cleared") speaking.agent = false;
    }
    const syllable = (rate) => 0.35 + 0.5 * Math.abs(Math.sin(at / rate)) * (0.6 + 0.4 * Math.sin(at / 37));
    history.push(at + shift, { caller: speaking.caller ? syllable(110) : 0.03, agent: speaking.agent ? syllable(90) : 0.01 });
  }
}

await window.page.loadAgent();
window.ready = true;
