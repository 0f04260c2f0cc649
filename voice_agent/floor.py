"""Who has the floor: the caller's voice and words go to the policy, and what it decides is done.

voice events, words, P(turn is complete) ─→ `turn.TurnPolicy` ─→ actions ─→ the session's turns
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from voice_agent.echo_text import is_echo
from voice_agent.engine.protocols import Language, Message, ThinkRequest
from voice_agent.hearing import Hearing, Utterance
from voice_agent.live import written_in
from voice_agent.turn import SAMPLES_PER_MS, Action, TurnPolicy
from voice_agent.wire import server as events
from voice_agent.words import asks, surely_whole

if TYPE_CHECKING:
    from voice_agent.asr import Transcript
    from voice_agent.session import Session
    from voice_agent.vad import VadEvent
    from voice_agent.wire.items import TurnDetection

log = logging.getLogger(__name__)

# How far a reply that goes on after a pause may go back, to a place between two syllables.
REWIND_MS = 240
# Words that the agent says, or said so short a time ago, are its echo if so much of their sound was the agent's.
ECHO_TAIL_MS = 2000
ECHO_SHARE = 0.3
# The probability that a turn is complete where nobody can say.
UNSURE = 0.5
# The answer to words that are less likely than this to be all of the turn is dropped ahead of its end.
GUESS_FROM = 0.3


class Floor:
    """The listening side of one session. All methods belong to the event loop."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.policy = TurnPolicy(session.settings.turn, judged=self._judges)
        self.hearing = Hearing(session.runtime, session.speaker, session.spawn)
        self.hearing.on_voice = self._on_voice
        self.hearing.on_partial = self._on_partial
        self.hearing.on_final = self._on_final
        self.hearing.on_overload = self._on_overload

    @property
    def _judges(self) -> bool:
        return self._session.runtime.engine.thinker.judges

    def announce_late(self) -> None:
        """Speech that began over a reply is told once that is over."""
        utterance = self.hearing.current
        if utterance is not None and not utterance.announced:
            self.announce(utterance)

    def tick(self) -> None:
        """A client that stops sending audio stops the policy's time too: the reply that it holds goes on."""
        if self._session.speaker.paused and self.hearing.silent_for() * 1000 >= self.policy.config.pause_max_ms:
            self._hold("resume")

    def _on_voice(self, heard: list[VadEvent]) -> None:
        for event in heard:
            self._do(self.policy.on(event))

    def _on_overload(self) -> None:
        self._session.drop_guess()
        self._session.tell(events.AgentStageFailed(stage="asr", message="these words could not be heard"))

    def _do(self, actions: Sequence[Action]) -> None:
        detection = self._session.settings.turn_detection
        if detection is None:
            return
        for action in actions:
            self._act(action, detection)

    def _act(self, action: Action, detection: TurnDetection) -> None:
        utterance = self.hearing.current
        if action.kind == "speech_started":
            self._open_utterance(action.at)
        elif action.kind in ("pause", "resume", "interrupt"):
            if detection.interrupt_response:
                self._hold(action.kind)
            if utterance is not None and utterance.stream is not None:
                utterance.stream.urgent = action.kind == "pause"
        elif utterance is None:
            return
        elif action.kind == "speculate":
            self.hearing.finalise(utterance, early=True)
        elif action.kind == "unspeculate":
            self.hearing.unspeculate(utterance)
            self._session.drop_guess()
        elif action.kind == "speech_stopped":
            utterance.last_voiced = action.at
            if utterance.announced:
                told_ms = action.at // SAMPLES_PER_MS
                self._session.tell(events.SpeechStopped(audio_end_ms=told_ms, item_id=utterance.item_id))
        elif action.kind == "commit":
            self._session.take(utterance)
            answered = detection.create_response and (self._session.turn is None or detection.interrupt_response)
            if answered:
                self._session.begin(self.hearing.arrival_of(action.at))
        else:
            self.hearing.drop()

    def _hold(self, kind: Literal["pause", "resume", "interrupt"]) -> None:
        """A voice over the reply: hold it until it is known what that was, then let it go on, or cancel it."""
        turn = self._session.turn
        if turn is None:
            return
        if kind == "interrupt":
            self._session.interrupt("turn_detected")
        elif kind == "pause" and not self._session.speaker.paused:
            self._session.speaker.pause()
            turn.hold(True)
            self._session.tell(events.AgentTurnPaused(turn_id=turn.id))
        elif kind == "resume" and self._session.speaker.paused:
            self._session.speaker.resume(rewind_ms=REWIND_MS)
            turn.hold(False)
            self._session.tell(events.AgentTurnResumed(turn_id=turn.id))

    def _open_utterance(self, onset: int) -> None:
        self._session.stays()
        language, likely = self._session.settings.language, self._session.call.language
        utterance = self.hearing.open(self._session.new_id("item"), onset, language, likely)
        if self._session.turn is None:
            self.announce(utterance)

    def announce(self, utterance: Utterance) -> None:
        """Clients stop playback at this event, so over a reply it waits until that is cancelled."""
        utterance.announced = True
        told_ms = max(0, utterance.onset) // SAMPLES_PER_MS
        self._session.tell(events.SpeechStarted(audio_start_ms=told_ms, item_id=utterance.item_id))

    def _on_partial(self, utterance: Utterance, transcript: Transcript, at: int) -> None:
        if self._is_own_voice(utterance, transcript.text, transcript.language):
            self._do(self.policy.words("", at))
            return
        if utterance.announced and transcript.text:
            delta = utterance.agree(transcript.text)
            told = events.TranscriptionDelta(item_id=utterance.item_id, delta=delta, transcript=transcript.text)
            self._session.tell(told)
        self._do(self.policy.words(transcript.text, at, doubted=transcript.raw))

    def _is_own_voice(self, utterance: Utterance, text: str, language: Language) -> bool:
        """Whether these words are the agent's, now or of the last moments, and came back as an echo."""
        said, until = self._session.last_said
        if self._session.turn is not None:
            said, until = self._session.turn.saying, utterance.onset
        if not said or utterance.onset - until > ECHO_TAIL_MS * SAMPLES_PER_MS:
            return False
        return self.hearing.echo_share(utterance) >= ECHO_SHARE and is_echo(text, said, language)

    def _on_final(self, utterance: Utterance) -> None:
        if utterance.language and self._is_own_voice(utterance, utterance.text, utterance.language):
            utterance.text = ""
        if utterance.committed:
            self._session.tell_transcript(utterance)
            return
        if utterance is self.hearing.current and not utterance.failed:
            self._do(self.policy.words(utterance.text, utterance.final_at))
        if utterance is self.hearing.current:
            self._session.begin_guess(utterance)
            if self._judges:
                self._session.spawn(self._judge(utterance, utterance.generation))
            elif whole := self._surely_whole(self._words_so_far(utterance)):
                self._do(self.policy.turn_end(whole, utterance.final_at))

    def _words_so_far(self, utterance: Utterance) -> Message:
        """What waits to be answered, and these words."""
        said = [*(source.text for source in self._session.unanswered if source.text), utterance.text]
        language = written_in(utterance.text, utterance.language) or self._session.call.language
        return Message("user", ("" if language == "zh" else " ").join(said))

    def _surely_whole(self, words: Message, judged: float = UNSURE) -> float:
        """How probable it is at least, from these words alone, that the turn is complete.

        A name may be the first word of many, so it counts where whoever `judged` does not deny that it is all.
        """
        names = ", ".join(self._session.runtime.prompt.values()) if judged >= GUESS_FROM else ""
        return surely_whole(words.text, asked=asks(self._session.last_said[0]), names=names)

    async def _judge(self, utterance: Utterance, generation: int) -> None:
        """Whether these words are all of the turn: the thinker knows, and of a few words anybody.

        Their answer is begun beside that, and dropped again if they are not.
        """
        words, complete = self._words_so_far(utterance), UNSURE
        if utterance.text:
            language = written_in(utterance.text, utterance.language) or self._session.call.language
            request = ThinkRequest(messages=(*self._session.conversation.messages, words), language=language)
            try:
                complete = await asyncio.wrap_future(self._session.runtime.engine.thinker.turn_end(request))
            except Exception:
                log.exception("call %s: the end of a turn could not be judged", self._session.call_id)
        complete = max(complete, self._surely_whole(words, complete))
        if utterance is self.hearing.current and generation == utterance.generation:
            if complete < GUESS_FROM:
                self._session.drop_guess()
            self._do(self.policy.turn_end(complete, utterance.final_at))
