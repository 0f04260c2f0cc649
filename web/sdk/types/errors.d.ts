/**
 * @param {unknown} error
 * @returns {CallError}
 */
export function asCallError(error: unknown): CallError;
/** @typedef {keyof typeof HINTS} CallErrorCode */
/** Why a call could not start, or ended on its own. */
export class CallError extends Error {
    /**
     * @param {CallErrorCode} code
     * @param {string} [detail] what the browser or the server said
     * @param {number | null} [retryAfterS] seconds that the server asks to wait
     */
    constructor(code: CallErrorCode, detail?: string, retryAfterS?: number | null);
    /** @readonly @type {CallErrorCode} */
    readonly code: CallErrorCode;
    /** What the browser or the server said; may be empty. @readonly */
    readonly detail: string;
    /** An English sentence that says what to do. @readonly @type {string} */
    readonly hint: string;
    /** @readonly */
    readonly retryAfterS: number | null;
}
export type CallErrorCode = keyof typeof HINTS;
/** What to do about each error; the key is its code. */
declare const HINTS: Readonly<{
    insecure_page: "Open the page over https or on localhost: browsers open the microphone nowhere else.";
    microphone_denied: "Allow the microphone in the browser's site settings, beside the address bar, and call again.";
    no_microphone: "Plug in a microphone or choose another one, or connect with {microphone: false} and type.";
    microphone_busy: "Close the program that uses the microphone and call again.";
    audio_blocked: "Call play() from a click or a key press: the browser lets a page make sound only then.";
    unsupported: "This browser cannot do that; leave the choice to the system's settings.";
    server_unreachable: "Check that the server runs, that the address is right and that its certificate is accepted.";
    server_full: "All lines are taken: call again in a moment.";
    rate_limited: "Too many calls in a short time: wait as long as retryAfterS says.";
    unauthorized: "Give a valid token: the server's key, or a client secret that it made.";
    server_refused: "The server did not take the call; detail holds its own words.";
    call_forgotten: "The server no longer has the call to take over: begin a new one.";
    ice_failed: "No path for the sound. Allow UDP, or give the server a public address or a TURN server.";
    connection_lost: "The network was away for too long: call again.";
    cancelled: "hangUp() was called before the call was connected.";
}>;
export {};
