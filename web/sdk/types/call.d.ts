/**
 * @typedef {object} CallEvents
 * @property {CallState} state the call is in another state now
 * @property {ServerEvent} event any event of the server, before those who listen to its own type
 * @property {{playing: boolean}} audio `playing: false`: the browser held the sound back, nobody hears what is said; call `play` from a click
 * @property {PlayoutReport} playout how the agent's voice reaches the ear, four times a second
 * @property {{}} microphone_lost the microphone went away; `useMicrophone` takes another one
 */
/**
 * The call's own events, and each type of server event.
 *
 * @typedef {CallEvents & {[Type in ServerEvent["type"]]: Extract<ServerEvent, {type: Type}>}} Listenable
 */
/**
 * @typedef {object} CallOptions
 * @property {string} [url] where offers are posted; else `/v1/realtime/calls` of the page's own server
 * @property {string | (() => Promise<string>)} [token] the server's key or a client secret, or how to get one
 * @property {Record<string, Tool>} [tools] functions that the agent may call here, by name
 * @property {HTMLAudioElement} [element] plays the agent's voice; else one is made
 * @property {RTCIceServer[]} [iceServers] STUN and TURN servers for this side
 * @property {Transport} [transport] in place of WebRTC, for tests
 */
/**
 * One call to a voice agent.
 *
 *     const call = new VoiceCall({ url: "https://shop.example/v1/realtime/calls" });
 *     call.on("response.output_audio_transcript.delta", ({ delta }) => caption.append(delta));
 *     call.on("state", (state) => state.status === "ended" && show(state.error?.hint));
 *     await call.connect();
 *
 * Connect from a click, so that the browser allows sound. When the connection breaks, the call makes a new one that
 * takes over the state and the history of the old one; it ends by itself only when that fails.
 */
export class VoiceCall {
    /** @param {CallOptions} [options] */
    constructor({ url, token, tools, element, iceServers, transport }?: CallOptions);
    /** @returns {CallState} */
    get state(): CallState;
    /** The server's id; null before it is connected. */
    get id(): string | null;
    /** Whether the caller's voice is held back. */
    get muted(): boolean;
    /**
     * Listens to an event of the call or of the server.
     *
     * @template {keyof Listenable} Type
     * @param {Type} type
     * @param {(event: Listenable[Type]) => void} listener
     * @returns {() => void} stops listening
     */
    on<Type extends keyof Listenable>(type: Type, listener: (event: Listenable[Type]) => void): () => void;
    /**
     * Opens the microphone and connects. Resolves when the call is live.
     *
     * @param {object} [options]
     * @param {boolean} [options.microphone] false: the call sends silence, for those who type
     * @param {string} [options.deviceId] which microphone; see `listDevices`
     * @param {boolean} [options.muted] begin muted
     * @throws {CallError} its `code` says why and its `hint` what to do
     */
    connect({ microphone, deviceId, muted }?: {
        microphone?: boolean | undefined;
        deviceId?: string | undefined;
        muted?: boolean | undefined;
    }): Promise<void>;
    /**
     * Sends an event of the realtime protocol.
     *
     * @param {ClientEvent} event
     * @returns {boolean} false when there is no connection
     */
    send(event: ClientEvent): boolean;
    /**
     * Says something in writing and asks for a reply, cutting off the one that is being spoken.
     *
     * @param {string} text
     * @returns {string | null} the id of the new item; null when there is no connection
     */
    say(text: string): string | null;
    /** Stops the agent, as the caller's voice does. Nothing happens when it is silent. */
    interrupt(): void;
    /**
     * The call goes on and sends silence while it is muted.
     *
     * @param {boolean} muted
     */
    setMuted(muted: boolean): void;
    /**
     * Changes to another microphone without a break.
     *
     * @param {string} [deviceId] see `listDevices`; else the system's choice
     * @throws {CallError} the microphone in use stays
     */
    useMicrophone(deviceId?: string): Promise<void>;
    /**
     * Changes to another loudspeaker.
     *
     * @param {string} deviceId see `listDevices`
     * @throws {CallError} unsupported, where the browser leaves this to the system
     */
    useSpeaker(deviceId: string): Promise<void>;
    /**
     * Lets the agent's voice sound after the browser held it back. Call it from a click or a key press.
     *
     * @throws {CallError} audio_blocked
     */
    play(): Promise<void>;
    /** How loud each side is now, 0 to 1. */
    levels(): {
        caller: number;
        agent: number;
    };
    /** Ends the call. What comes back later is ignored. */
    hangUp(): void;
    #private;
}
/**
 * It ends once; a new call is a new `VoiceCall`.
 */
export type CallState = {
    status: "new";
} | {
    status: "connecting";
} | {
    status: "live";
} | {
    status: "reconnecting";
    attempt: number;
} | {
    status: "ended";
    by: "caller" | "server" | "error";
    error: CallError | null;
};
export type EndedState = Extract<CallState, {
    status: "ended";
}>;
export type CallEvents = {
    /**
     * the call is in another state now
     */
    state: CallState;
    /**
     * any event of the server, before those who listen to its own type
     */
    event: ServerEvent;
    /**
     * `playing: false`: the browser held the sound back, nobody hears what is said; call `play` from a click
     */
    audio: {
        playing: boolean;
    };
    /**
     * how the agent's voice reaches the ear, four times a second
     */
    playout: PlayoutReport;
    /**
     * the microphone went away; `useMicrophone` takes another one
     */
    microphone_lost: {};
};
/**
 * The call's own events, and each type of server event.
 */
export type Listenable = CallEvents & { [Type in ServerEvent["type"]]: Extract<ServerEvent, {
    type: Type;
}>; };
export type CallOptions = {
    /**
     * where offers are posted; else `/v1/realtime/calls` of the page's own server
     */
    url?: string | undefined;
    /**
     * the server's key or a client secret, or how to get one
     */
    token?: string | (() => Promise<string>) | undefined;
    /**
     * functions that the agent may call here, by name
     */
    tools?: Record<string, Tool> | undefined;
    /**
     * plays the agent's voice; else one is made
     */
    element?: HTMLAudioElement | undefined;
    /**
     * STUN and TURN servers for this side
     */
    iceServers?: RTCIceServer[] | undefined;
    /**
     * in place of WebRTC, for tests
     */
    transport?: Transport | undefined;
};
import type { ClientEvent } from "../types/events.js";
import { CallError } from "./errors.js";
import type { ServerEvent } from "../types/events.js";
import type { PlayoutReport } from "./playout.js";
import type { Tool } from "./tools.js";
import type { Transport } from "./transport.js";
