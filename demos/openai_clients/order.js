import { OpenAIRealtimeWebRTC, RealtimeAgent, RealtimeSession, tool } from "@openai/agents-realtime";
import { Cart, toolsOn } from "./cart.js";

const server = new URLSearchParams(location.search).get("server") ?? "http://127.0.0.1:8080";
const byId = (id) => document.getElementById(id);
const wordsOf = (item) => item.content.map((part) => part.transcript ?? part.text ?? "").join("");

function showHistory(history) {
  const rows = history.map((item) => {
    const row = document.createElement("li");
    row.textContent = item.type === "message" ? `${item.role}: ${wordsOf(item)}` : `${item.name}(${item.arguments})`;
    return row;
  });
  byId("history").replaceChildren(...rows);
}

/** A client secret. A server that has a key gives one to whoever has that key: then this is for your own backend. */
async function clientSecret() {
  const response = await fetch(`${server}/v1/realtime/client_secrets`, { method: "POST" });
  const body = await response.json();
  if (!response.ok) throw new Error(body.error.message);
  return body.value;
}

async function call() {
  const { info } = await (await fetch(`${server}/v1/agent`)).json();
  const cart = new Cart(info.menu);
  const tools = toolsOn(cart, () => (byId("cart").textContent = JSON.stringify(cart.view().lines, null, 1)));
  const agent = new RealtimeAgent({ name: "clerk", instructions: "You take orders at a drink shop.", tools: tools.map(tool) });
  const transport = new OpenAIRealtimeWebRTC({ baseUrl: `${server}/v1/realtime/calls`, audioElement: byId("voice") });
  const session = new RealtimeSession(agent, { transport, tracingDisabled: true });
  session.on("history_updated", showHistory);
  // Over WebRTC it is the server that cuts a reply off; the client has no event of its own for that.
  session.on("transport_event", ({ type }) => {
    if (type === "output_audio_buffer.started") byId("state").textContent = "speaking";
    if (type === "output_audio_buffer.stopped") byId("state").textContent = "listening";
    if (type === "output_audio_buffer.cleared") byId("state").textContent = "interrupted";
  });
  session.on("error", ({ error }) => (byId("state").textContent = `error: ${JSON.stringify(error)}`));
  byId("interrupt").onclick = () => session.interrupt();
  await session.connect({ apiKey: await clientSecret() });
  return session;
}

byId("call").onclick = async () => {
  byId("call").disabled = true;
  byId("state").textContent = "connecting";
  try {
    window.session = await call();
    byId("state").textContent = "listening";
    byId("interrupt").disabled = false;
  } catch (error) {
    byId("state").textContent = `${error.message}`;
    byId("call").disabled = false;
  }
};
