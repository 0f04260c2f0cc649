"""How often callers do what: the next turn of a dialogue."""

from __future__ import annotations

from collections.abc import Callable

from .answering import follow_up
from .asking import about, ask_of_it, look_up, menu, options, order_number, place, read_back, simple
from .changing import (
    change,
    change_all,
    choice_to_choice,
    clear,
    misheard,
    missing_line,
    remove,
    replace,
    replace_cups,
    some_cups,
    swap_topping,
    then_place,
    two_lines,
    two_operations,
    vague_remove,
)
from .ordering import (
    absurd,
    all_alike,
    also,
    bad_option,
    by_turns,
    category,
    corrected,
    each,
    for_others,
    milk_with_topping,
    order,
    order_with_split,
    partial,
    same_again,
    split,
    unsold,
    varieties,
    with_unsold,
    without_own,
)
from .scene import Plan, Scene
from .scripted import scripted

EMPTY: list[tuple[float, Callable[[Scene], Plan]]] = [
    (46, order),
    (50, scripted("add")),
    (5, each),
    (12, split),
    (3.5, varieties),
    (3, by_turns),
    (2, order_with_split),
    (2.5, all_alike),
    (4, for_others),
    (1.5, also),
    (6, corrected),
    (2.5, with_unsold),
    (3, unsold),
    (1.5, absurd),
    (3, partial),
    (2.5, category),
    (3.5, bad_option),
    (2.5, without_own),
    (3, milk_with_topping),
    (4.5, look_up),
    (1.5, about),
    (2, menu),
    (0.6, place),
    (0.7, order_number),
    (2.2, simple("greet", "greet")),
    (0.7, simple("thanks", "thanks")),
    (0.4, simple("bye", "bye")),
    (0.8, simple("wait", "wait")),
    (0.8, simple("ack", "ack")),
    (0.6, simple("abuse", "abuse")),
    (0.6, simple("who", "who")),
    (1.6, simple("chat", "chat")),
    (0.3, options),
    (0.3, simple("sizes", "sizes")),
    (0.3, simple("extras", "extras")),
]


FILLED: list[tuple[float, Callable[[Scene], Plan]]] = [
    (11, order),
    (14, scripted("add")),
    (66, scripted("change")),
    (1.2, each),
    (4, split),
    (1, varieties),
    (0.5, order_with_split),
    (0.8, all_alike),
    (1, for_others),
    (0.5, also),
    (1.5, corrected),
    (2, misheard),
    (2, choice_to_choice),
    (1, then_place),
    (4.5, same_again),
    (1, with_unsold),
    (1.2, unsold),
    (0.5, absurd),
    (1, partial),
    (1, category),
    (1.5, bad_option),
    (0.5, without_own),
    (20, change),
    (6, some_cups),
    (2.5, change_all),
    (8, swap_topping),
    (8, replace),
    (3, replace_cups),
    (9, remove),
    (10, two_operations),
    (3.5, two_lines),
    (2.5, clear),
    (4, missing_line),
    (0.8, vague_remove),
    (3, look_up),
    (1, ask_of_it),
    (1, about),
    (0.7, menu),
    (6, read_back),
    (3, place),
    (0.3, order_number),
    (0.4, simple("greet", "greet")),
    (0.7, simple("thanks", "thanks")),
    (0.3, simple("bye", "bye")),
    (0.8, simple("wait", "wait")),
    (1, simple("ack", "ack")),
    (0.4, simple("abuse", "abuse")),
    (0.3, simple("who", "who")),
    (1.2, simple("chat", "chat")),
    (0.9, options),
    (0.2, simple("sizes", "sizes")),
    (0.2, simple("extras", "extras")),
]


def plan_turn(s: Scene) -> Plan:
    """The next turn of this dialogue."""
    if s.pending is not None and s.rng.random() < 0.68:
        plan = follow_up(s)
        if plan is not None:
            return plan
    if s.order_number is not None and not s.lines and s.rng.random() < 0.12:
        return order_number(s)
    table = FILLED if s.lines else EMPTY
    return s.rng.choices([f for _, f in table], [w for w, _ in table])[0](s)
