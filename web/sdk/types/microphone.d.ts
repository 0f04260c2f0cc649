/**
 * Opens a microphone with echo cancellation, noise suppression and automatic gain.
 *
 * @param {string} [deviceId] the one to open; else the system's choice
 * @returns {Promise<MediaStream>}
 * @throws {CallError} insecure_page, microphone_denied, no_microphone or microphone_busy
 */
export function openMicrophone(deviceId?: string): Promise<MediaStream>;
/**
 * The microphones and speakers to choose from. Before the microphone was allowed once, browsers hide their labels.
 *
 * @returns {Promise<{microphones: MediaDeviceInfo[], speakers: MediaDeviceInfo[]}>}
 * @throws {CallError} insecure_page
 */
export function listDevices(): Promise<{
    microphones: MediaDeviceInfo[];
    speakers: MediaDeviceInfo[];
}>;
