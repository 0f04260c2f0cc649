// Hands the SDK messages of a server, one after the other; prints what became of them as one line of JSON.
// node server_events.mjs SDK_SOURCE FILE, a JSON array of texts
import { readFileSync } from "node:fs";

const [source, file] = process.argv.slice(2);
const { VoiceCall } = await import(`${source}/index.js`);
const { FakeTransport } = await import(`${source}/fake.js`);

class RawTransport extends FakeTransport {
  async connect(target, handlers) {
    this.receive = handlers.message;
    return super.connect(target, handlers);
  }
}

let raised = 0;
process.on("uncaughtException", () => (raised += 1));
console.warn = () => {};
const server = new RawTransport();
const run = () => ({ ok: true });
const call = new VoiceCall({ transport: server, tools: { a: { description: "", parameters: { type: "object" }, run } } });
const taken = [];
call.on("event", (event) => taken.push(event.type));
await call.connect();
for (const text of JSON.parse(readFileSync(file, "utf-8"))) server.receive(text);
await new Promise((resolve) => setTimeout(resolve, 50));
const said = call.say("still there");
console.log(JSON.stringify({ taken, raised, status: call.state.status, said: said !== null }));
call.hangUp();
