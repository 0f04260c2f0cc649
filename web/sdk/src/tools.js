/** @import {ClientEvent, ServerEvent} from "../types/events.js" */

/**
 * A function that the agent may call on this side.
 *
 * @typedef {object} Tool
 * @property {string} description what it does and when to use it, for the model
 * @property {Record<string, unknown>} parameters JSON schema of its arguments
 * @property {(args: any) => unknown} run
 *   its result, or a promise of it, goes to the model as JSON; when it throws, the model is told so
 */

/**
 * Runs the agent's function calls. A call that has begun is finished and its output sent, also when the reply that
 * asked for it was interrupted; the agent goes on speaking only if it was not.
 */
export class Tools {
  #tools;
  #send;
  /** Calls of the response that is being made. @type {Array<Promise<void>>} */
  #running = [];

  /** @param {Record<string, Tool>} tools @param {(event: ClientEvent) => boolean} send */
  constructor(tools, send) {
    this.#tools = tools;
    this.#send = send;
  }

  /** Tells the server what there is; each new connection asks for it. */
  announce() {
    this.#running = [];
    const tools = Object.entries(this.#tools).map(([name, { description, parameters }]) => ({
      type: /** @type {const} */ ("function"),
      name,
      description,
      parameters,
    }));
    if (tools.length > 0) this.#send({ type: "session.update", session: { type: "realtime", tools } });
  }

  /** @param {ServerEvent} event */
  onEvent(event) {
    if (event.type === "response.created") this.#running = [];
    if (event.type === "response.output_item.done") {
      const { item } = event;
      if (item.type === "function_call" && item.status === "completed") this.#running.push(this.#run(item));
    }
    if (event.type === "response.done") {
      const running = this.#running;
      this.#running = [];
      if (running.length > 0 && event.response.status === "completed") void this.#goOn(running);
    }
  }

  /** @param {Array<Promise<void>>} running */
  async #goOn(running) {
    await Promise.all(running);
    this.#send({ type: "response.create" });
  }

  /** @param {{name: string, call_id: string, arguments: string}} call */
  async #run({ name, call_id, arguments: given }) {
    let output;
    try {
      const tool = this.#tools[name];
      if (!tool) throw new Error(`no such tool: expected one of ${Object.keys(this.#tools).join(", ")}, got ${name}`);
      output = (await tool.run(JSON.parse(given))) ?? null;
    } catch (error) {
      output = { ok: false, error: error instanceof Error ? error.message : String(error) };
    }
    const item = { type: /** @type {const} */ ("function_call_output"), call_id, output: JSON.stringify(output) };
    this.#send({ type: "conversation.item.create", item });
  }
}
