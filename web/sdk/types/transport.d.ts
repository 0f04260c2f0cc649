/** @import {CallErrorCode} from "./errors.js" */
/** @import {PlayoutReport} from "./playout.js" */
export const EVENTS_CHANNEL: "oai-events";
/**
 * What a connection reports. After `lost` or `ended` it reports nothing more.
 *
 * @typedef {object} TransportHandlers
 * @property {(text: string) => void} message an event of the server, as JSON text
 * @property {(playing: boolean) => void} audio whether the agent's voice may sound; false: `play` from a gesture first
 * @property {() => void} microphoneLost the microphone was unplugged or taken away
 * @property {(detail: string) => void} lost the connection broke
 * @property {() => void} ended the other side closed the connection
 */
/**
 * Where to connect, and in place of which call.
 *
 * @typedef {object} Target
 * @property {string} url where the offer is posted
 * @property {string | null} token sent as a Bearer key
 * @property {string | null} replaces id of the call whose state the new connection takes over
 * @property {number} timeoutMs a connection that is not there by then has failed
 * @property {AbortSignal} signal gives up a connection that is being made
 */
/**
 * The way to a server: one object for a call, which may connect more than once. `WebRtcTransport` is the real one,
 * `FakeTransport` in `voice-agent-sdk/testing` the one for tests.
 *
 * @typedef {object} Transport
 * @property {(options: {microphone: boolean, deviceId?: string}) => Promise<void>} open
 *   Takes the microphone, or silence in its place. Called again, it takes another microphone without reconnecting.
 * @property {(target: Target, handlers: TransportHandlers) => Promise<string>} connect
 *   Resolves with the call's id when events flow both ways. An earlier connection is dropped, without a report.
 * @property {(text: string) => boolean} send an event as JSON text; false when there is no connection
 * @property {(muted: boolean) => void} setMuted
 * @property {(deviceId: string) => Promise<void>} useSpeaker
 * @property {() => Promise<void>} play lets the agent's voice sound; throws CallError audio_blocked
 * @property {() => {caller: number, agent: number}} levels how loud each side is now, 0 to 1
 * @property {() => Promise<{packets: number, report: PlayoutReport} | null>} measure
 *   null without a connection
 * @property {(options: {sayGoodbye: boolean}) => void} close frees everything; with a goodbye the server is told
 */
/** Over WebRTC: an offer by HTTP, two audio tracks, and events on a data channel. */
export class WebRtcTransport {
    /**
     * @param {object} [options]
     * @param {HTMLAudioElement} [options.element] plays the agent's voice; else one is made
     * @param {RTCIceServer[]} [options.iceServers] STUN and TURN servers of the browser's side
     */
    constructor({ element, iceServers }?: {
        element?: HTMLAudioElement | undefined;
        iceServers?: RTCIceServer[] | undefined;
    });
    /** @param {{microphone: boolean, deviceId?: string}} options */
    open({ microphone, deviceId }: {
        microphone: boolean;
        deviceId?: string;
    }): Promise<void>;
    /** @param {Target} target @param {TransportHandlers} handlers */
    connect(target: Target, handlers: TransportHandlers): Promise<string>;
    /** @param {string} text */
    send(text: string): boolean;
    /** @param {boolean} muted */
    setMuted(muted: boolean): void;
    /** @param {string} deviceId */
    useSpeaker(deviceId: string): Promise<void>;
    play(): Promise<void>;
    levels(): {
        caller: number;
        agent: number;
    };
    measure(): Promise<{
        packets: number;
        report: PlayoutReport;
    } | null>;
    /** @param {{sayGoodbye: boolean}} options */
    close({ sayGoodbye }: {
        sayGoodbye: boolean;
    }): void;
    #private;
}
/**
 * What a connection reports. After `lost` or `ended` it reports nothing more.
 */
export type TransportHandlers = {
    /**
     * an event of the server, as JSON text
     */
    message: (text: string) => void;
    /**
     * whether the agent's voice may sound; false: `play` from a gesture first
     */
    audio: (playing: boolean) => void;
    /**
     * the microphone was unplugged or taken away
     */
    microphoneLost: () => void;
    /**
     * the connection broke
     */
    lost: (detail: string) => void;
    /**
     * the other side closed the connection
     */
    ended: () => void;
};
/**
 * Where to connect, and in place of which call.
 */
export type Target = {
    /**
     * where the offer is posted
     */
    url: string;
    /**
     * sent as a Bearer key
     */
    token: string | null;
    /**
     * id of the call whose state the new connection takes over
     */
    replaces: string | null;
    /**
     * a connection that is not there by then has failed
     */
    timeoutMs: number;
    /**
     * gives up a connection that is being made
     */
    signal: AbortSignal;
};
/**
 * The way to a server: one object for a call, which may connect more than once. `WebRtcTransport` is the real one,
 * `FakeTransport` in `voice-agent-sdk/testing` the one for tests.
 */
export type Transport = {
    /**
     *   Takes the microphone, or silence in its place. Called again, it takes another microphone without reconnecting.
     */
    open: (options: {
        microphone: boolean;
        deviceId?: string;
    }) => Promise<void>;
    /**
     *   Resolves with the call's id when events flow both ways. An earlier connection is dropped, without a report.
     */
    connect: (target: Target, handlers: TransportHandlers) => Promise<string>;
    /**
     * an event as JSON text; false when there is no connection
     */
    send: (text: string) => boolean;
    setMuted: (muted: boolean) => void;
    useSpeaker: (deviceId: string) => Promise<void>;
    /**
     * lets the agent's voice sound; throws CallError audio_blocked
     */
    play: () => Promise<void>;
    /**
     * how loud each side is now, 0 to 1
     */
    levels: () => {
        caller: number;
        agent: number;
    };
    /**
     *   null without a connection
     */
    measure: () => Promise<{
        packets: number;
        report: PlayoutReport;
    } | null>;
    /**
     * frees everything; with a goodbye the server is told
     */
    close: (options: {
        sayGoodbye: boolean;
    }) => void;
};
import type { PlayoutReport } from "./playout.js";
