"""What the slots of a pattern stand for in a scene, and the calls that the pattern then makes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from .patterns import Pattern, Step
from .scene import OPTIONS, OWN, Call, Item, Scene, add_call, change_call, copy_of, latest

DRINK_OF = {topping: drink for drink, topping in OWN.items()}
COUNTS = [2, 2, 2, 3, 3, 3, 4, 4, 5, 6, 8, 10]


@dataclass
class Filled:
    """What the slots of a plan stand for in a scene."""

    lines: dict[str, int] = field(default_factory=dict)
    drinks: dict[str, str] = field(default_factory=dict)
    options: dict[str, str] = field(default_factory=dict)
    toppings: dict[str, str] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)


def bind(s: Scene, pattern: Pattern, said: Sequence[tuple[str, str, str]]) -> Filled | None:
    """Something for every slot of a plan, or None where the cart or the menu has nothing that fits."""
    filled = Filled()
    fits = (
        _lines(s, pattern, filled)
        and _drinks(s, pattern, filled, said)
        and _numbers(s, pattern, filled)
        and _toppings(s, pattern, filled)
        and _options(s, pattern, filled)
        and all(_possible(s, step, filled) for step in pattern.steps)
    )
    return filled if fits else None


def calls_of(s: Scene, pattern: Pattern, filled: Filled) -> list[Call]:
    """Changes by line, then what takes lines away from the last to the first, so that numbers stay true."""

    def rank(call: Call) -> tuple[int, int]:
        name, line = call[0], call[1].get("line", 0)
        places = {"clear": (0, 0), "change": (1, line), "remove": (2, -line), "replace": (2, -line), "add": (3, 0)}
        return places.get(name, (4, 0))

    return sorted((call for step in pattern.steps for call in _calls(s, step, filled)), key=rank)


def _lines(s: Scene, pattern: Pattern, filled: Filled) -> bool:
    for step in pattern.steps:
        if len(s.lines) < {"all": 2, "keep": 2, "clear": 1}.get(step.verb, 0):
            return False
        if step.target in LINES:
            number = filled.lines.get(step.target) or LINES[step.target](s, filled)
            if not number or (step.held and s.lines[number - 1]["quantity"] != step.held):
                return False
            if step.cups and s.lines[number - 1]["quantity"] <= int(step.cups if step.cups.isdigit() else 1):
                return False
            if number in (n for target, n in filled.lines.items() if target != step.target):
                return False
            filled.lines[step.target] = number
        elif step.verb in ("read", "place") and not s.lines and not any(x.verb == "add" for x in pattern.steps):
            return False
    return True


def _single(s: Scene, filled: Filled) -> int:
    """A line that its drink alone tells."""
    drinks = [line["drink"] for line in s.lines]
    free = [i for i, d in enumerate(drinks, 1) if drinks.count(d) == 1 and i not in filled.lines.values()]
    return s.rng.choice(free) if free else 0


def _nth(number: int) -> Callable[[Scene, Filled], int]:
    def find(s: Scene, _: Filled) -> int:
        fits = len(s.lines) >= max(2, number) and all(line["quantity"] == 1 for line in s.lines[:number])
        return number if fits else 0

    return find


def _latest(s: Scene, _: Filled) -> int:
    return latest(s) if s.touched or len(s.lines) == 1 else 0


def _middle(s: Scene, _: Filled) -> int:
    return 2 if len(s.lines) == 3 and all(line["quantity"] == 1 for line in s.lines) else 0


def _last(s: Scene, _: Filled) -> int:
    return len(s.lines) if len(s.lines) > 1 and s.lines[-1]["quantity"] == 1 else 0


def _other(s: Scene, _: Filled) -> int:
    return 3 - min(s.touched) if len(s.lines) == 2 and len(s.touched) == 1 else 0


def _old(s: Scene, filled: Filled) -> int:
    found = [
        (number, line[key])
        for number, line in enumerate(s.lines, 1)
        for key in OPTIONS
        if line[key] != s.shop.default(line["drink"], key) and sum(x[key] == line[key] for x in s.lines) == 1
    ]
    if not found or len(s.lines) < 2:
        return 0
    number, filled.options["old"] = s.rng.choice(found)
    return number


LINES: dict[str, Callable[[Scene, Filled], int]] = {
    **dict.fromkeys("xyz", _single),
    **{str(number): _nth(number) for number in range(1, 5)},
    "l": _latest,
    "mid": _middle,
    "last": _last,
    "other": _other,
    "old": _old,
}


def _drinks(s: Scene, pattern: Pattern, filled: Filled, said: Sequence[tuple[str, str, str]]) -> bool:
    """What is added or put in a line's place: drinks that the lines which the plan names do not have."""
    drinks = list(s.shop.menu.drinks)
    s.rng.shuffle(drinks)
    held = {s.lines[number - 1]["drink"] for number in filled.lines.values()}
    slots = {step.target for step in pattern.steps if step.verb == "add"} | {step.drink for step in pattern.steps}
    slots |= {"wa"} if any(slot == "wa" for _, slot, _ in said) else set()
    free = iter(drink for drink in drinks if drink not in held)
    for slot in sorted(slots - {""}):
        if slot in filled.lines:
            filled.drinks[slot] = s.lines[filled.lines[slot] - 1]["drink"]
        else:
            filled.drinks[slot] = "milk_tea" if slot in ("m", "v") else next(free)
    if "v" in slots:
        filled.toppings["u"] = s.rng.choice(list(DRINK_OF))
    return True


def _numbers(s: Scene, pattern: Pattern, filled: Filled) -> bool:
    rng = s.rng
    for step in pattern.steps:
        held = s.lines[filled.lines[step.target] - 1]["quantity"] if step.target in filled.lines else 0
        if step.quantity.startswith("n") and step.quantity not in filled.numbers:
            counts = [c for c in COUNTS if c != held] if held or len(step.quantity) == 1 else [1, 1, 1, *COUNTS[:9]]
            filled.numbers[step.quantity] = rng.choice(counts)
        if step.cups == "k":
            filled.numbers["k"] = rng.randint(1, held - 1)
    added = [_number(step.quantity, filled) for step in pattern.steps if step.verb == "add"]
    filled.numbers["sum"] = sum(added)
    for slot in [slot for slot in filled.numbers if slot[0] == "n"]:
        filled.numbers["w" + slot] = rng.choice([c for c in COUNTS if c != filled.numbers[slot]])
    return True


def _number(word: str, filled: Filled) -> int:
    return filled.numbers[word] if word in filled.numbers else int(word or 1)


def _of(s: Scene, step: Step, filled: Filled) -> list[str]:
    """The drinks that a step's options are for."""
    if step.verb == "all":
        return [line["drink"] for line in s.lines]
    if step.verb == "add":
        return [filled.drinks[step.target]]
    if step.drink:
        return [filled.drinks[step.drink]]
    return [s.lines[filled.lines[step.target] - 1]["drink"]] if step.target in filled.lines else []


def _toppings(s: Scene, pattern: Pattern, filled: Filled) -> bool:
    names = list(s.shop.menu.toppings)
    for step in pattern.steps:
        lines = s.lines if step.verb == "all" else []
        if step.target in filled.lines and not step.drink:
            lines = [s.lines[filled.lines[step.target] - 1]]
        for slot in step.out:
            there = {*lines[0]["toppings"]} ^ ({OWN[lines[0]["drink"]]} if lines[0]["drink"] in OWN else set())
            there -= set(filled.toppings.values())
            if not there:
                return False
            filled.toppings[slot] = s.rng.choice(sorted(there))
        taken = {t for line in lines for t in line["toppings"]} | {OWN.get(d, "") for d in _of(s, step, filled)}
        taken |= {topping for slot, topping in filled.toppings.items() if slot not in step.put}
        for slot in step.put:
            free = [t for t in names if t not in taken]
            if slot not in filled.toppings:
                if not free:
                    return False
                filled.toppings[slot] = s.rng.choice(free)
            elif filled.toppings[slot] in taken:
                return False
            taken.add(filled.toppings[slot])
    for slot in [slot for slot in filled.toppings if slot[0] == "t"]:
        filled.toppings["w" + slot] = s.rng.choice([t for t in names if t not in filled.toppings.values()])
    return True


def _options(s: Scene, pattern: Pattern, filled: Filled) -> bool:
    rng = s.rng
    split = rng.choice(OPTIONS)
    keys: dict[str, str] = {}
    for slot in dict.fromkeys(slot for step in pattern.steps for slot in step.options):
        steps = [step for step in pattern.steps if slot in step.options]
        family = slot.rstrip("0123456789")
        used = {keys[other] for step in steps for other in step.options if other in keys}
        possible = rng.sample(OPTIONS, 3) if family == "o" else [split if family == "s" else family]
        for key in possible:
            free = _free(s, steps, filled, key) if key not in used else []
            same = {filled.options[other] for other in keys if family != "o" and other.startswith(family)}
            free = [value for value in free if value not in same]
            if free:
                keys[slot] = key
                break
        else:
            return False
        filled.options[slot] = rng.choice(free)
        drink = _of(s, steps[0], filled)[0]
        wrong = [c for c in s.shop.choices(drink, keys[slot]) if c != filled.options[slot]]
        if wrong:
            filled.options["w" + slot] = rng.choice(wrong)
    return True


def _free(s: Scene, steps: Sequence[Step], filled: Filled, key: str) -> list[str]:
    """The choices that every step may take: what its drink has and, mostly, what is not so anyway."""
    free = list(s.shop.menu.options[key])
    plain = s.rng.random() < 0.85
    for step in steps:
        now = set()
        if step.verb in ("change", "copy", "all") and not step.drink:
            lines = s.lines if step.verb == "all" else [s.lines[filled.lines[step.target] - 1]]
            now = {line[key] for line in lines} if len(lines) == 1 else set()
        elif plain:
            now = {s.shop.default(drink, key) for drink in _of(s, step, filled)}
        allowed = [s.shop.choices(drink, key) for drink in _of(s, step, filled)]
        free = [c for c in free if c not in now and all(c in choices for choices in allowed)]
    return free


def _possible(s: Scene, step: Step, filled: Filled) -> bool:
    """Whether a drink that was misheard takes the choices that were made for the other one."""
    if step.verb != "change" or not step.drink:
        return True
    line, new = s.lines[filled.lines[step.target] - 1], filled.drinks[step.drink]
    kept = [key for key in OPTIONS if line[key] != s.shop.default(line["drink"], key)]
    return all(line[key] in s.shop.choices(new, key) for key in kept)


def _calls(s: Scene, step: Step, filled: Filled) -> list[Call]:
    chosen: Item = {_key(s, filled.options[slot]): filled.options[slot] for slot in step.options}
    names = list(s.shop.menu.toppings)
    put = sorted((filled.toppings[slot] for slot in step.put), key=names.index)
    out = sorted((filled.toppings[slot] for slot in step.out), key=names.index)
    number = filled.lines.get(step.target, 0)
    if step.verb in ("clear", "place", "read"):
        return [("read_back" if step.verb == "read" else step.verb, {})]
    if step.verb == "add":
        item = {"drink": filled.drinks[step.target], "quantity": _number(step.quantity, filled), "toppings": put}
        return [add_call(item | chosen)]
    if step.verb == "copy":
        return [add_call(copy_of(s.lines[number - 1], s, _number(step.quantity, filled)) | chosen)]
    if step.verb == "keep":
        return [("remove", {"line": n}) for n in range(len(s.lines), 0, -1) if n != number]
    cups = {"cups": _number(step.cups, filled)} if step.cups else {}
    if step.verb == "remove":
        return [("remove", {"line": number} | cups)]
    if step.verb == "replace":
        what: Item = {"drink": filled.drinks[step.drink]} | chosen | ({"toppings": put} if put else {})
        if step.quantity:
            what["quantity"] = _number(step.quantity, filled)
        return [("replace", {"line": number} | cups | what)]
    if step.verb == "all":
        return [change_call(n, chosen | {"add_toppings": put}) for n in range(1, len(s.lines) + 1)]
    line = s.lines[number - 1]
    change: Item = chosen | {"add_toppings": put, "remove_toppings": [t for t in out if t in line["toppings"]]}
    if step.quantity:
        change["quantity"] = _number(step.quantity, filled)
    if step.drink:
        change["drink"] = filled.drinks[step.drink]
    elif len(change["remove_toppings"]) < len(out):  # what the drink is named after
        change["drink"] = "milk_tea"
        if len(put) == 1 and put[0] in DRINK_OF:
            change |= {"drink": DRINK_OF[put[0]], "add_toppings": []}
    return [change_call(number, change, cups.get("cups"))]


def _key(s: Scene, choice: str) -> str:
    return next(key for key in OPTIONS if choice in s.shop.menu.options[key])
