/** A call without a network: the interface of web/call.js, driven by the test. */
import { CallError } from "/call.js";

export class FakeCall {
  constructor(handlers, failure = null) {
    this.handlers = handlers;
    this.failure = failure;
    this.sent = [];
    this.muted = false;
    this.open = true;
    this.level = { caller: 0, agent: 0 };
  }

  async connect(options) {
    this.options = options;
    if (this.failure === "pending") await new Promise(() => {});
    if (this.failure) throw new CallError(this.failure, "");
  }

  send(event) {
    this.sent.push(event);
    return this.open;
  }

  say(text) {
    this.send({ type: "conversation.item.create", item: { type: "message", role: "user", content: [{ type: "input_text", text }] } });
    this.send({ type: "response.create" });
    return `item_typed_${this.sent.length}`;
  }

  setMuted(muted) {
    this.muted = muted;
  }

  levels() {
    return this.level;
  }

  hangUp() {
    this.open = false;
  }
}
