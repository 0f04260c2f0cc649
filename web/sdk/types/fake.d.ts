/** @import {ServerEvent} from "../types/events.js" */
/** @import {CallErrorCode} from "./errors.js" */
/** @import {PlayoutReport} from "./playout.js" */
/** @import {Target, TransportHandlers} from "./transport.js" */
/**
 * Takes the place of WebRTC: a test plays the server, and looks at what the call sent.
 *
 *     const server = new FakeTransport();
 *     const call = new VoiceCall({ transport: server });
 *     await call.connect();
 *     server.emit({ type: "output_audio_buffer.started", response_id: "r1" });
 *     server.sent; // the client events so far, parsed
 */
export class FakeTransport {
    /** Client events in the order in which they were sent. @type {Array<Record<string, any>>} */
    sent: Array<Record<string, any>>;
    /** The targets of all connections so far. @type {Array<Target>} */
    targets: Array<Target>;
    /** How the microphone was opened last. @type {{microphone: boolean, deviceId?: string} | null} */
    opened: {
        microphone: boolean;
        deviceId?: string;
    } | null;
    muted: boolean;
    /** @type {string | null} */
    speaker: string | null;
    connected: boolean;
    /** Whether the server was told of the end. */
    saidGoodbye: boolean;
    /** What `levels` gives. */
    level: {
        caller: number;
        agent: number;
    };
    /** No sound arrives any more, as when the network is gone; the call notices after two seconds. */
    silent: boolean;
    /** @type {PlayoutReport} */
    report: PlayoutReport;
    /** Whether the browser lets sound out at once. */
    autoplay: boolean;
    /** The next step, opening the microphone or connecting, fails with this code. Several fail one after the other.
     * @param {CallErrorCode} code */
    failNext(code: CallErrorCode): void;
    /** Connections stay in the making until they are given up. */
    neverConnect(): void;
    /** The server sends an event. @param {ServerEvent | Record<string, unknown>} event */
    emit(event: ServerEvent | Record<string, unknown>): void;
    /** The connection breaks. */
    lose(): void;
    /** The server says that it ends the call, and closes the connection. */
    end(): void;
    /** The microphone is unplugged. */
    loseMicrophone(): void;
    /** @param {{microphone: boolean, deviceId?: string}} options */
    open(options: {
        microphone: boolean;
        deviceId?: string;
    }): Promise<void>;
    /**
     * @param {Target} target
     * @param {TransportHandlers} handlers
     */
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
import type { Target } from "./transport.js";
import type { PlayoutReport } from "./playout.js";
import type { CallErrorCode } from "./errors.js";
import type { ServerEvent } from "../types/events.js";
import type { TransportHandlers } from "./transport.js";
