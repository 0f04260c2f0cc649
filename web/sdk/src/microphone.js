import { CallError } from "./errors.js";

/** @import {CallErrorCode} from "./errors.js" */

/** @type {Record<string, CallErrorCode>} */
const CODES = {
  NotAllowedError: "microphone_denied",
  SecurityError: "microphone_denied",
  NotFoundError: "no_microphone",
  OverconstrainedError: "no_microphone",
  NotReadableError: "microphone_busy",
  AbortError: "microphone_busy",
};

/**
 * Opens a microphone with echo cancellation, noise suppression and automatic gain.
 *
 * @param {string} [deviceId] the one to open; else the system's choice
 * @returns {Promise<MediaStream>}
 * @throws {CallError} insecure_page, microphone_denied, no_microphone or microphone_busy
 */
export async function openMicrophone(deviceId) {
  if (!globalThis.isSecureContext || !navigator.mediaDevices?.getUserMedia) throw new CallError("insecure_page");
  const chosen = deviceId === undefined ? {} : { deviceId: { exact: deviceId } };
  try {
    return await navigator.mediaDevices.getUserMedia({
      audio: { echoCancellation: true, noiseSuppression: true, autoGainControl: true, ...chosen },
    });
  } catch (error) {
    if (!(error instanceof DOMException)) throw error;
    throw new CallError(CODES[error.name] ?? "no_microphone", error.message);
  }
}

/**
 * The microphones and speakers to choose from. Before the microphone was allowed once, browsers hide their labels.
 *
 * @returns {Promise<{microphones: MediaDeviceInfo[], speakers: MediaDeviceInfo[]}>}
 * @throws {CallError} insecure_page
 */
export async function listDevices() {
  if (!navigator.mediaDevices) throw new CallError("insecure_page");
  const devices = await navigator.mediaDevices.enumerateDevices();
  return {
    microphones: devices.filter(({ kind }) => kind === "audioinput"),
    speakers: devices.filter(({ kind }) => kind === "audiooutput"),
  };
}
