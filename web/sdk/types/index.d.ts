export { VoiceCall } from "./call.js";
export { CallError } from "./errors.js";
export { listDevices } from "./microphone.js";
export type CallEvents = import("./call.js").CallEvents;
export type CallOptions = import("./call.js").CallOptions;
export type CallState = import("./call.js").CallState;
export type Listenable = import("./call.js").Listenable;
export type CallErrorCode = import("./errors.js").CallErrorCode;
export type PlayoutReport = import("./playout.js").PlayoutReport;
export type Tool = import("./tools.js").Tool;
export type Target = import("./transport.js").Target;
export type Transport = import("./transport.js").Transport;
export type TransportHandlers = import("./transport.js").TransportHandlers;
/**
 * What a client may send; see `types/events.d.ts`.
 */
export type ClientEvent = import("../types/events.js").ClientEvent;
/**
 * What a server sends; see `types/events.d.ts`.
 */
export type ServerEvent = import("../types/events.js").ServerEvent;
