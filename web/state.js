/**
 * What the page knows, as a pure function: `reduce(state, action)` returns a new state and touches nothing else.
 *
 * Actions carry `at`, milliseconds on one monotonic clock of the caller's choice. Server events arrive as
 * `{type: "server.event", event, at}` with the event exactly as it came over the data channel.
 */

const CAPTIONS_KEPT = 200;
const TURNS_KEPT = 5;
const MARKS_KEPT = 60;

const EMPTY_CART = Object.freeze({ lines: [], total: 0, currency: "CNY" });

/** What a call starts with; everything here is forgotten when the next call begins. */
function freshCall() {
  return {
    call: { phase: "idle" },
    captions: [],
    cart: EMPTY_CART,
    changedLines: [],
    cartVersion: 0,
    receipt: null,
    turns: [],
    cleanup: null,
    marks: [],
    failedStages: {},
    playout: null,
    notice: null,
  };
}

export function initialState() {
  return { ...freshCall(), agent: null, microphones: [] };
}

/**
 * "listening" | "hearing" | "thinking" | "speaking" | "interrupted" | "reconnecting", or null when there is no live
 * call.
 */
export function activityOf(state) {
  const { call } = state;
  if (call.phase !== "live") return null;
  if (call.reconnecting) return "reconnecting";
  if (call.interrupted) return "interrupted";
  if (call.callerSpeaking || call.paused) return "hearing";
  if (call.playing !== null) return "speaking";
  return call.awaitingReply ? "thinking" : "listening";
}

/**
 * Splits an agent caption into what was heard and what was not (yet).
 * The heard text may differ from the caption in white space, so white space is not compared.
 */
export function splitHeard(caption) {
  if (caption.heardAll) return { heard: caption.text, unheard: "" };
  const wanted = caption.heardText.replace(/\s+/g, "").length;
  let end = 0;
  for (let seen = 0; seen < wanted && end < caption.text.length; end += 1) {
    if (!/\s/.test(caption.text[end])) seen += 1;
  }
  return { heard: caption.text.slice(0, end), unheard: caption.text.slice(end) };
}

export function reduce(state, action) {
  switch (action.type) {
    case "agent.loaded":
      return { ...state, agent: action.agent };
    case "call.connecting":
      return {
        ...freshCall(),
        agent: state.agent,
        microphones: state.microphones,
        call: { phase: "connecting", microphone: action.microphone },
      };
    case "call.live":
      return {
        ...state,
        call: {
          phase: "live",
          since: action.at,
          microphone: state.call.microphone ?? true,
          muted: false,
          audioBlocked: state.call.audioBlocked ?? false,
          callerSpeaking: false,
          awaitingReply: false,
          interrupted: false,
          playing: null,
          paused: false,
          reconnecting: false,
        },
      };
    case "call.reconnecting":
      return withCall(wordsAtTheEnd(state), {
        callerSpeaking: false,
        awaitingReply: false,
        interrupted: false,
        playing: null,
        paused: false,
        reconnecting: true,
      });
    case "call.resumed":
      return { ...withCall(state, { reconnecting: false }), notice: { kind: "reconnected" } };
    case "call.ended":
      return endCall(state, action);
    case "call.failed":
      return {
        ...wordsAtTheEnd(state),
        call: { phase: "failed", error: action.error, microphone: state.call.microphone },
        notice: null,
      };
    case "call.muted":
      return withCall(state, { muted: action.muted });
    case "audio.blocked":
      return { ...state, call: { ...state.call, audioBlocked: true } };
    case "audio.playing":
      return { ...state, call: { ...state.call, audioBlocked: false } };
    case "microphone.lost":
      return state.call.phase === "live" ? { ...state, notice: { kind: "microphone_lost" } } : state;
    case "microphone.refused":
      return { ...state, notice: { kind: "microphone_refused" } };
    case "microphones.listed":
      return { ...state, microphones: action.microphones };
    case "playout.measured":
      return { ...state, playout: action.report };
    case "notice.dismissed":
      return { ...state, notice: null };
    case "text.sent":
      return withCall(
        putCaption(state, { ...callerCaption(action.id, action.text), final: true, typed: true }),
        { awaitingReply: true, interrupted: false },
      );
    case "server.event":
      return state.call.phase === "live" ? reduceServer(state, action.event, action.at) : state;
    default:
      throw new Error(`unknown action type: expected one of the page's own, got ${action.type}`);
  }
}

function reduceServer(state, event, at) {
  switch (event.type) {
    case "input_audio_buffer.speech_started":
      return withCall(putCaption(dropEmptyCaller(state), callerCaption(event.item_id, "")), {
        callerSpeaking: true,
        interrupted: false,
      });
    case "input_audio_buffer.speech_stopped":
      return withCall(state, { callerSpeaking: false });
    case "input_audio_buffer.committed":
      return withCall(addMark(state, "turn", at), {
        callerSpeaking: false,
        interrupted: false,
        awaitingReply: true,
      });
    case "conversation.item.input_audio_transcription.delta":
      return callerWords(state, event.item_id, (old) => event.transcript ?? old + event.delta, false);
    case "conversation.item.input_audio_transcription.completed":
      return callerDone(state, event.item_id, event.transcript ?? "");
    case "conversation.item.input_audio_transcription.failed":
      return callerDone(state, event.item_id, "");
    case "conversation.item.added":
      return adoptTypedItem(state, event.item);
    case "response.output_audio_transcript.delta":
    case "response.output_text.delta":
      return agentWords(state, event, (old) => old + event.delta);
    case "response.output_audio_transcript.done":
      return agentWords(state, event, (old) => event.transcript ?? old);
    case "response.output_text.done":
      return patchCaption(agentWords(state, event, (old) => event.text ?? old), event.item_id, () => ({ heardAll: true }));
    case "output_audio_buffer.started":
      return withCall(addMark(state, "reply", at), {
        playing: event.response_id,
        awaitingReply: false,
        interrupted: false,
      });
    case "output_audio_buffer.stopped":
      return withCall(heardToTheEnd(state, event.response_id), { playing: null, paused: false });
    case "agent.turn.paused":
      return withCall(addMark(state, "pause", at), { paused: true });
    case "agent.turn.resumed":
      return withCall(state, { paused: false });
    case "output_audio_buffer.cleared":
      return cleared(state, event, at);
    case "conversation.item.truncated":
      return patchCaption(state, event.item_id, (caption) =>
        caption.heardAll ? {} : { cut: true, heardText: event.agent?.text ?? caption.heardText },
      );
    case "response.done":
      return responseDone(state, event.response);
    case "agent.playout.heard":
      return patchCaption(state, event.item_id, () => ({ heardText: event.text }));
    case "agent.cart.updated":
      return cartUpdated(state, event.cart);
    case "agent.tool.called":
      return toolCalled(state, event);
    case "agent.turn.latency":
      return { ...state, failedStages: {}, notice: null, turns: [...state.turns, turnOf(event, state.playout)].slice(-TURNS_KEPT) };
    case "agent.turn.receipts":
      return { ...state, cleanup: cleanupOf(event) };
    case "agent.stage.failed":
      return withCall(
        {
          ...state,
          failedStages: { ...state.failedStages, [event.stage]: event.message },
          notice: { kind: "stage_failed", stage: event.stage },
        },
        { awaitingReply: false },
      );
    case "error":
      return withCall({ ...state, notice: { kind: "server_error", detail: event.error?.message ?? "" } }, {
        awaitingReply: false,
      });
    default:
      return state;
  }
}

function withCall(state, patch) {
  return state.call.phase === "live" ? { ...state, call: { ...state.call, ...patch } } : state;
}

function endCall(state, { at, reason }) {
  const seconds = state.call.phase === "live" ? Math.round((at - state.call.since) / 1000) : 0;
  return { ...wordsAtTheEnd(state), call: { phase: "ended", reason, seconds }, notice: null };
}

// ---- captions

function callerCaption(id, text) {
  return { id, speaker: "caller", text, final: false, typed: false };
}

function putCaption(state, caption) {
  if (state.captions.some((other) => other.id === caption.id)) return state;
  return { ...state, captions: [...state.captions, caption].slice(-CAPTIONS_KEPT) };
}

function patchCaption(state, id, patch) {
  return {
    ...state,
    captions: state.captions.map((caption) => (caption.id === id ? { ...caption, ...patch(caption) } : caption)),
  };
}

function dropEmptyCaller(state) {
  return { ...state, captions: state.captions.filter((caption) => caption.speaker === "agent" || caption.text) };
}

/** What is left when a call ends in the middle of something: empty captions go, unheard words never will be heard. */
function wordsAtTheEnd(state) {
  const captions = dropEmptyCaller(state).captions.map((caption) =>
    caption.speaker === "agent" && !caption.heardAll ? { ...caption, cut: true } : caption,
  );
  return { ...state, captions };
}

function callerWords(state, id, textOf, final) {
  return patchCaption(putCaption(state, callerCaption(id, "")), id, (caption) =>
    caption.final && !final ? {} : { text: textOf(caption.text), final },
  );
}

function callerDone(state, id, transcript) {
  const text = transcript.trim();
  if (text) return callerWords(state, id, () => text, true);
  // Nothing was said after all: a noise, or a cough.
  return withCall(
    { ...state, captions: state.captions.filter((caption) => caption.id !== id) },
    { awaitingReply: false, interrupted: false },
  );
}

/** The server may give a typed message an id of its own; the words are shown once. */
function adoptTypedItem(state, item) {
  const text = item?.role === "user" ? item.content?.find((part) => part.type === "input_text")?.text : undefined;
  if (!text || state.captions.some((caption) => caption.id === item.id)) return state;
  const own = state.captions.findLast((caption) => caption.typed && caption.text === text && !caption.adopted);
  if (own) return patchCaption(state, own.id, () => ({ id: item.id, adopted: true }));
  return putCaption(state, { ...callerCaption(item.id, text), final: true, typed: true, adopted: true });
}

function agentWords(state, event, textOf) {
  const fresh = {
    id: event.item_id,
    speaker: "agent",
    responseId: event.response_id,
    text: "",
    heardText: "",
    heardAll: false,
    cut: false,
  };
  return patchCaption(putCaption(state, fresh), event.item_id, (caption) =>
    caption.cut ? {} : { text: textOf(caption.text) },
  );
}

function captionsOfResponse(state, responseId, patch) {
  return {
    ...state,
    captions: state.captions.map((caption) =>
      caption.speaker === "agent" && caption.responseId === responseId ? { ...caption, ...patch(caption) } : caption,
    ),
  };
}

function heardToTheEnd(state, responseId) {
  return captionsOfResponse(state, responseId, (caption) => (caption.cut ? {} : { heardAll: true }));
}

// ---- replies

function cleared(state, event, at) {
  const wasPlaying = state.call.playing !== null;
  const marked = wasPlaying ? addMark(state, "barge_in", at) : state;
  const cut = captionsOfResponse(marked, event.response_id, (caption) => (caption.heardAll ? {} : { cut: true }));
  return withCall(cut, { playing: null, paused: false, interrupted: wasPlaying && state.call.callerSpeaking });
}

function responseDone(state, response) {
  if (response.status === "completed") return withCall(state, { awaitingReply: false });
  const cut = captionsOfResponse(state, response.id, (caption) => (caption.heardAll ? {} : { cut: true }));
  // A cancelled reply while the caller's next words are being thought about leaves that wait alone.
  return response.status === "failed" ? withCall(cut, { awaitingReply: false }) : cut;
}

function addMark(state, kind, at) {
  return { ...state, marks: [...state.marks, { kind, at }].slice(-MARKS_KEPT) };
}

// ---- cart

function lineKey(line) {
  const toppings = [...(line.toppings ?? [])].sort().join(",");
  return [line.drink, line.quantity, line.size, line.ice, line.sugar, toppings].join("|");
}

function cartUpdated(state, cart) {
  const before = state.cart.lines.map(lineKey);
  const changedLines = [];
  for (const line of cart.lines) {
    const known = before.indexOf(lineKey(line));
    if (known < 0) changedLines.push(line.line);
    else before.splice(known, 1);
  }
  const placed = cart.placed === true;
  const receipt = placed ? { number: cart.order_number ?? state.receipt?.number ?? null, cart } : state.receipt;
  return {
    ...state,
    cart: placed ? EMPTY_CART : cart,
    changedLines: placed ? [] : changedLines,
    cartVersion: state.cartVersion + 1,
    receipt: cart.lines.length > 0 && !placed ? null : receipt,
  };
}

function toolCalled(state, { name, result }) {
  if (name !== "place" || result?.ok !== true) return state;
  return { ...state, receipt: { number: result.order_number ?? null, cart: result.cart } };
}

// ---- figures

export const LATENCY_STEPS = Object.freeze([
  "eot_delay_ms",
  "asr_ms",
  "thinker_first_token_ms",
  "talker_first_frame_ms",
  "codec_first_chunk_ms",
  "first_rtp_ms",
]);

/** The server's own steps, and what the way to the ear adds to them where the browser has measured it. */
function turnOf(event, playout) {
  const steps = LATENCY_STEPS.map((name) => ({ name, ms: Math.max(0, event[name] ?? 0) }));
  const onTheServer = event.v2v_ms ?? steps.reduce((sum, step) => sum + step.ms, 0);
  if (!playout) return { id: event.turn_id, steps, totalMs: onTheServer };
  const network = { name: "network_ms", ms: playout.roundTripMs };
  const heard = { name: "playout_ms", ms: playout.jitterBufferMs + playout.deviceMs };
  return { id: event.turn_id, steps: [...steps, network, heard], totalMs: onTheServer + network.ms + heard.ms };
}

function cleanupOf(event) {
  return {
    turnId: event.turn_id,
    slowestMs: event.ms ?? Math.max(0, ...event.receipts.map((receipt) => receipt.ms)),
    stages: event.receipts.length,
  };
}
