// A spoken call with a tool and an interruption by OpenAI's client; prints what it saw as one line of JSON.
// node agents_realtime.mjs NODE_MODULES WEBSOCKET_URL KEY
const [modules, url, apiKey] = process.argv.slice(2);
const client = await import(`${modules}/@openai/agents-realtime/dist/index.mjs`);
const { OpenAIRealtimeWebSocket, RealtimeAgent, RealtimeSession, tool } = client;
const seen = { audioBytes: 0, interrupted: 0, tools: [], errors: [] };

const weather = tool({
  name: "weather",
  description: "The weather in a city",
  parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"], additionalProperties: false },
  execute: async (input) => {
    seen.tools.push(input);
    return JSON.stringify({ say: "it rains ".repeat(20) });
  },
});
const session = new RealtimeSession(new RealtimeAgent({ name: "test", instructions: "be brief", tools: [weather] }), {
  transport: new OpenAIRealtimeWebSocket({ url }),
  tracingDisabled: true,
});
session.on("audio", (event) => (seen.audioBytes += event.data.byteLength));
session.on("audio_interrupted", () => (seen.interrupted += 1));
session.on("error", (error) => seen.errors.push(JSON.stringify(error)));

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const until = async (condition, what) => {
  for (const end = Date.now() + 20_000; !condition(); await pause(10)) {
    if (Date.now() > end) throw new Error(`never came: ${what}; ${JSON.stringify(seen)}`);
  }
};
const say = (ms, level) => session.sendAudio(new Int16Array(24 * ms).fill(level).buffer);
const messages = () => session.history.filter((item) => item.type === "message");
const texts = () => messages().map((item) => item.content.map((part) => part.transcript ?? part.text ?? "").join(""));

await session.connect({ apiKey });
say(600, 1000);
say(700, 0);
await until(() => seen.audioBytes > 48 * 300, "the reply");
say(1000, 1000);
await until(() => seen.interrupted > 0, "the interruption");
say(700, 0);
await until(() => seen.tools.length === 2, "the second turn");
await until(() => texts().length >= 4 && texts()[3].length > 30, "the second reply");
await until(() => session.history.filter((item) => item.type === "function_call").every((item) => item.output), "outputs");
session.close();
console.log(JSON.stringify({ ...seen, roles: messages().map((item) => item.role), texts: texts() }));
process.exit(0);
