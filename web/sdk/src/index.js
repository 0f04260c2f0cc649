/**
 * Voice calls to a voice-agent server from a browser.
 *
 * @module
 */
export { VoiceCall } from "./call.js";
export { CallError } from "./errors.js";
export { listDevices } from "./microphone.js";

/** @typedef {import("./call.js").CallEvents} CallEvents */
/** @typedef {import("./call.js").CallOptions} CallOptions */
/** @typedef {import("./call.js").CallState} CallState */
/** @typedef {import("./call.js").Listenable} Listenable */
/** @typedef {import("./errors.js").CallErrorCode} CallErrorCode */
/** @typedef {import("./playout.js").PlayoutReport} PlayoutReport */
/** @typedef {import("./tools.js").Tool} Tool */
/** @typedef {import("./transport.js").Target} Target */
/** @typedef {import("./transport.js").Transport} Transport */
/** @typedef {import("./transport.js").TransportHandlers} TransportHandlers */
/**
 * What a client may send; see `types/events.d.ts`.
 *
 * @typedef {import("../types/events.js").ClientEvent} ClientEvent
 * @hidden
 */
/**
 * What a server sends; see `types/events.d.ts`.
 *
 * @typedef {import("../types/events.js").ServerEvent} ServerEvent
 * @hidden
 */
