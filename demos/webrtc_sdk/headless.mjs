// A call without a screen: a recording is the microphone of headless Chromium, and the SDK does the rest.
// node headless.mjs [recording.wav] [address of the server]
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";

const [recording = fileURLToPath(new URL("../ordering/order.wav", import.meta.url)), server = "http://127.0.0.1:8080"] =
  process.argv.slice(2);
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: [
    "--no-sandbox",
    "--use-fake-ui-for-media-stream",
    "--use-fake-device-for-media-stream",
    `--use-file-for-fake-audio-capture=${recording}%noloop`,
    "--allow-loopback-in-peer-connection",
  ],
});
try {
  const page = await browser.newPage();
  // The server's own origin, so that no other one need be allowed; the SDK lies there too.
  await page.goto(server);
  await page.exposeFunction("print", (...words) => console.log(...words));
  const cart = await page.evaluate(async () => {
    const { VoiceCall } = await import("/sdk/src/index.js");
    const call = new VoiceCall();
    let cart = null;
    const answered = new Promise((resolve, reject) => {
      call.on("conversation.item.input_audio_transcription.completed", ({ transcript }) => print("caller:", transcript));
      call.on("response.output_audio_transcript.done", ({ transcript }) => print("agent:", transcript));
      call.on("agent.turn.latency", ({ v2v_ms }) => print(`answered after ${Math.round(v2v_ms)} ms`));
      call.on("agent.cart.updated", (event) => (cart = event.cart));
      call.on("output_audio_buffer.stopped", resolve);
      call.on("state", ({ status, error }) => status === "ended" && reject(new Error(error?.hint ?? "the call ended")));
    });
    await call.connect();
    await answered;
    call.hangUp();
    return cart;
  });
  console.log(JSON.stringify(cart));
} finally {
  await browser.close();
}
