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
    /** @param {Record<string, Tool>} tools @param {(event: ClientEvent) => boolean} send */
    constructor(tools: Record<string, Tool>, send: (event: ClientEvent) => boolean);
    /** Tells the server what there is; each new connection asks for it. */
    announce(): void;
    /** @param {ServerEvent} event */
    onEvent(event: ServerEvent): void;
    #private;
}
/**
 * A function that the agent may call on this side.
 */
export type Tool = {
    /**
     * what it does and when to use it, for the model
     */
    description: string;
    /**
     * JSON schema of its arguments
     */
    parameters: Record<string, unknown>;
    /**
     *   its result, or a promise of it, goes to the model as JSON; when it throws, the model is told so
     */
    run: (args: any) => unknown;
};
import type { ServerEvent } from "../types/events.js";
import type { ClientEvent } from "../types/events.js";
