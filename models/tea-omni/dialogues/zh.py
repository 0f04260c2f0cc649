"""How Mandarin callers say things, and how the agent answers them."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from voice_agent.tea.numbers import mandarin as number

from .words import phrases

Item = dict[str, Any]
SAY = phrases("zh")
DRINK = {name: words[0] for name, words in SAY.names.items()}
# How a choice is said before the drink (少冰的…), and on its own (…，冰少一点).


def count(value: int) -> str:
    """A number before a measure word."""
    return "两" if value == 2 else number(value)


def yuan(value: float) -> str:
    whole = int(value)
    text = ("两" if whole == 2 else number(whole)) + "块"
    return text + "五" if value != whole else text


def quantity(rng: random.Random, value: int) -> str:
    if value == 2 and rng.random() < 0.12:
        return rng.choice(["俩", "两个", "两份", "两"])
    if value in (3, 6, 12) and rng.random() < 0.05:
        return {3: "仨", 6: "半打", 12: "一打"}[value]
    if rng.random() < 0.06:
        return str(value) + rng.choice(["杯", "杯", "个"])
    return count(value) + rng.choice(["杯"] * 8 + ["个", "份", "盃"])


def topping(rng: random.Random, name: str) -> str:
    return rng.choice(SAY.said_topping.get(name, [SAY.topping[name]]))


def toppings(rng: random.Random, names: Sequence[str]) -> str:
    names = list(names)
    rng.shuffle(names)
    if len(names) == 1 or rng.random() < 0.5:
        add = rng.choice(["加", "加", "加", "加个", "加一份", "再加", "多加", "要加", "加点", "放"])
        return add + rng.choice(["和", "跟", "", "、", "还有"]).join(topping(rng, n) for n in names)
    return rng.choice(["", "，"]).join(rng.choice(["加", "再加", "加个", "加份"]) + topping(rng, n) for n in names)


def said_options(item: Item) -> list[str]:
    return [item[key] for key in ("size", "ice", "sugar") if item.get(key)]


def after_word(rng: random.Random, option: str) -> str:
    """A choice on its own; now and then with what it is about: 糖的话半糖."""
    if rng.random() > 0.1:
        return str(rng.choice(SAY.after[option]))
    about = ["冰的话", "冰量", "冰块"] if option.endswith("ice") else ["糖的话", "甜度", "糖度", "糖"]
    if option in ("large", "medium", "small", "hot"):
        about = ["要", "做", "然后"]
    return (
        rng.choice(about)
        + rng.choice(["", "就", "要"]) * (option != "hot")
        + SAY.shown[option]
        + ("的" if option == "hot" else "")
    )


def item(rng: random.Random, it: Item, manner: tuple[float, int] | None = None) -> str:
    """One thing to order, in one of many word orders; `manner` fixes the order: of the words, and of the choices."""
    n = it.get("quantity", 1)
    q = quantity(rng, n) if n > 1 or rng.random() < 0.8 else rng.choice(["", "个", "杯"])
    name = it.get("name") or rng.choice(SAY.names[it["drink"]])
    options = said_options(it)
    rng.shuffle(options)
    cut = rng.choice([0, len(options), len(options), rng.randint(0, len(options))])
    if manner:
        cut = min(manner[1], len(options))
    before = "".join(rng.choice(SAY.before[o]) for o in options[:cut])
    if before and rng.random() < 0.25 and not before.endswith("的"):
        before += "的"
    after = [after_word(rng, o) for o in options[cut:]]
    joint = rng.choice(["，", "", "，", " "])
    tops = it.get("toppings") or []
    # 珍珠奶茶加椰果, 加珍珠的奶茶
    front = ""
    if tops and rng.random() < 0.12:
        front = "加" + rng.choice(["和", ""]).join(topping(rng, t) for t in tops) + "的"
        tops = []
    style = manner[0] if manner else rng.random()
    if style < 0.62:
        core = (q + before + front + name) if rng.random() < 0.8 else (before + q + front + name)
    elif style < 0.85 and q:
        core = before + front + name + rng.choice(["", "，", "来", "要"]) + q
    else:
        core = q + front + before + name
    if tops:
        after.insert(rng.randint(0, len(after)), toppings(rng, tops))
    rest = rng.choice(["，", "", "，", "，然后", "，再"]).join(after)
    return core + (joint + rest if rest else "")


def wish(rng: random.Random, more: bool) -> str:
    if more and rng.random() < 0.2:
        return ""
    return rng.choice(["", "", *SAY.want]) if not more or rng.random() < 0.3 else rng.choice(SAY.more)


def order(rng: random.Random, items: Sequence[Item], more: bool) -> str:
    text = wish(rng, more)
    manner = (rng.random(), rng.choice([0, 3])) if len(items) > 1 and rng.random() < 0.8 else None
    joint = rng.choice(["，", "，", "、", "", " "]) if manner and rng.random() < 0.4 else ""
    for index, it in enumerate(items):
        if index:
            text += joint or rng.choice(SAY.conjunctions) if rng.random() < 0.8 else "，"
        text += item(rng, it, manner)
    return text + rng.choice(SAY.end)


def each(rng: random.Random, items: Sequence[Item], n: int, more: bool) -> str:
    names = [
        item(rng, {**it, "quantity": 1}) if it.get("bare") is False else rng.choice(SAY.names[it["drink"]])
        for it in items
    ]
    body = rng.choice(["，", "、", "和", "跟"]).join(names[:-1]) + rng.choice(["和", "跟", "、", "还有"]) + names[-1]
    q = quantity(rng, n) if rng.random() < 0.9 else count(n) + "杯"
    if rng.random() < 0.25:
        return wish(rng, more) + "各" + q + body + rng.choice(SAY.end)
    return wish(rng, more) + body + rng.choice(["各", "各", "，各", "一样", "各来", "，每样"]) + q + rng.choice(SAY.end)


def for_all(rng: random.Random, value: str, n: int) -> str:
    word = rng.choice(SAY.after[value])
    lead = rng.choice(["都", "都", "全部", "全都", "两杯都" if n == 2 else "都", "每杯都"])
    return (
        rng.choice(["，", "，", " "]) + lead + ("" if word[0] in "要不别做加" else rng.choice(["要", "", "做"])) + word
    )


def varieties(rng: random.Random, drink: str, parts: Sequence[Item], key: str) -> str:
    name = rng.choice(SAY.names[drink])
    after = rng.random() < 0.6
    bits = [
        count(p["quantity"])
        + rng.choice(["杯", "杯", "个"])
        + rng.choice(SAY.after[p[key]] if after else SAY.before[p[key]])
        for p in parts
    ]
    body = rng.choice(["，", "", "，", "和"]).join(bits)
    if after:
        return name + rng.choice(["，", "", "要"]) + body
    return body + rng.choice(["的", "", "，都是", "，"]).replace("的", "的" if not body.endswith("的") else "") + name


def option_words(rng: random.Random, it: Item) -> str:
    words = [rng.choice(SAY.after[o]) for o in said_options(it)]
    rng.shuffle(words)
    if it.get("toppings"):
        words.append(toppings(rng, it["toppings"]))
    return rng.choice(["", "，"]).join(words)


def split(rng: random.Random, shared: Item, parts: Sequence[Item], more: bool, some: bool) -> list[str]:
    """两杯…，一杯去冰，一杯少冰; some: only the first part is named (其中一杯去冰). The head, and each part."""
    total = sum(p["quantity"] for p in parts)
    head = wish(rng, more) + item(rng, {**shared, "quantity": total, "said": True})
    said = parts[:1] if some else parts
    bits = []
    for index, part in enumerate(said):
        n = count(part["quantity"]) + rng.choice(["杯", "杯", "个"])
        lead = (
            rng.choice(["其中", "其中", "有", "里面"]) if some else rng.choice(["", "", "其中"]) if index == 0 else ""
        )
        if index and part["quantity"] == 1 and rng.random() < 0.25:
            n = rng.choice(["另一杯", "另外一杯", "还有一杯"])
        elif index and index == len(said) - 1 and rng.random() < 0.12:
            n = rng.choice(["剩下的", "其他的", "另外" + n])
        none = ["不加", "不用加", "什么都不加", "不要加"] if parts[0].get("toppings") else ["正常", "正常的", "正常做"]
        words = option_words(rng, part) or rng.choice(none)
        bits.append(lead + n + rng.choice(["", "", "要"]) * (not words.startswith("要")) + words)
    head += rng.choice(["，", "，", " "])
    between = rng.choice(["，", "，", ""])
    return [head, *(bit + between for bit in bits[:-1]), bits[-1] + rng.choice(SAY.end[:8])]


def corrected_order(rng: random.Random, wrong: Item, right: Item, what: str, more: bool) -> str:
    """我要大杯，不对，中杯."""
    no = rng.choice(["，", "，", "", "。"]) + rng.choice(SAY.no)
    head = wish(rng, more) + item(rng, wrong)
    if what == "drink":
        tail = rng.choice(["", "要", "来", "换成", "是"]) + rng.choice(SAY.names[right["drink"]])
    elif what == "quantity":
        tail = rng.choice(["", "要", "是"]) + quantity(rng, right["quantity"])
    else:
        tail = rng.choice(["", "", "要", "是"]) + rng.choice(SAY.before[right[what]])
    return head + no + tail + rng.choice(SAY.end[:9])


ORDINAL = ["", "一", "二", "三", "四", "五", "六", "七", "八", "九", "十"]


def reference(rng: random.Random, how: str, line: Mapping[str, Any], number_: int, total: int) -> str:
    """How a line is meant: latest, ordinal, name, attribute, other, middle, last, only."""
    name = rng.choice(SAY.names[line["drink"]])
    if how == "latest":
        last = ["最后那杯", "最后一杯"] if number_ == total else []
        near = ["刚才那杯", "刚才那个", "那杯", "这杯", "刚刚那杯", "刚点的那杯", "它", "这个", "刚才的", "那个"]
        return rng.choice([*near, *last, "", "", "", ""])
    if how == "ordinal":
        if number_ == total and rng.random() < 0.25:
            return rng.choice(["最后一杯", "最后那杯", "最后一个", "后面那杯", "后面那个"])
        if number_ == 1 and rng.random() < 0.25:
            return rng.choice(["前面那杯", "最前面那杯", "头一杯", "第一个", "前面那个", "最开始那杯"])
        if total == 3 and number_ == 2 and rng.random() < 0.5:
            return rng.choice(["中间那杯", "中间那个", "中间的"])
        return "第" + ORDINAL[number_] + rng.choice(["杯", "杯", "个", "种", "样", "份"])
    if how == "other":
        return rng.choice(["另一杯", "另外一杯", "另外那杯", "另一个", "另外那个"])
    if how == "attribute":
        tail = rng.choice(["的那杯", "那杯", "的", "的那个", "的那杯" + name, "那杯" + name, "的" + name])
        if line["quantity"] > 1 and rng.random() < 0.4:
            tail = rng.choice(["的那", "那"]) + count(line["quantity"]) + "杯"
        return rng.choice(["", "", "那杯"] if "那" not in tail else [""]) + attribute(line) + tail
    if line["drink"] in SAY.short and rng.random() < 0.15:
        return str(SAY.short[line["drink"]]) + rng.choice(["那杯", "的", "的那杯"])
    return rng.choice(
        [name, name, name + "那杯", "那杯" + name, "那个" + name, "刚才那杯" + name, "我那杯" + name, "那" + name]
    )


def attribute(line: Mapping[str, Any]) -> str:
    return SAY.shown[line["attribute"]]


def change(rng: random.Random, ref: str, what: Item) -> str:
    """Other choices for a line: size, ice, sugar, quantity, add_toppings, remove_toppings."""
    bits = []
    keys = [k for k in ("size", "ice", "sugar", "quantity", "add_toppings", "remove_toppings") if what.get(k)]
    rng.shuffle(keys)
    ba = rng.choice(SAY.ba) if ref else ""
    for index, key in enumerate(keys):
        verb = rng.choice(SAY.put) if index == 0 or rng.random() < 0.3 else rng.choice(["", "要"])
        if key == "quantity":
            n = quantity(rng, what[key])
            bits.append(
                rng.choice([verb + n, "要" + n, "改成" + n, "来" + n, "一共要" + n, n]) + rng.choice(["", "", "吧"])
            )
        elif key == "add_toppings":
            bits.append(rng.choice(["", "", "再", "还要", "帮我", "给我"]) + toppings(rng, what[key]))
        elif key == "remove_toppings":
            names = rng.choice(["和", ""]).join(topping(rng, t) for t in what[key])
            bits.append(
                rng.choice(
                    [
                        "不要" + names,
                        "不要" + names + "了",
                        "去掉" + names,
                        "别加" + names,
                        "不加" + names,
                        "不用加" + names + "了",
                        names + "不要了",
                        "把" + names + "去掉",
                    ]
                )
            )
        elif verb in ("", "要", "做", "来") and rng.random() < 0.6:
            bits.append(rng.choice(SAY.after[what[key]]))
        else:
            bits.append(verb + rng.choice(SAY.before[what[key]]))
    text = bits[0] + "".join(rng.choice(["，", "，", ""]) + b for b in bits[1:])
    lead = rng.choice(["", "", "", "", "还是", "我要", "那", "嗯", "等一下，", "不对，", "对了，", "我说的是", "麻烦"])
    if lead in ("还是", "我说的是") and ref:
        lead = ""
    return lead + ba + ref + text + rng.choice(["", "", "吧", "吧", "谢谢", "可以吗", "好了", "行吗"])


def for_others(rng: random.Random, people: Sequence[str], items: Sequence[Item]) -> str:
    bits = []
    for index, (who, it) in enumerate(zip(people, items, strict=True)):
        words = item(rng, it)
        lead = [f"{who}要{words}", f"给{who}来{words}", f"{who}{words}", f"{who}的是{words}", f"{who}喝{words}"]
        bits.append(rng.choice(lead if index or who != "我" else [f"我要{words}", f"我{words}", f"我的是{words}"]))
    return rng.choice(["，", "，", "，然后", "。"]).join(bits) + rng.choice(SAY.end)


def of_whom(rng: random.Random, who: str) -> str:
    return who + rng.choice(["那杯", "那杯", "的", "的那杯", "那个"])


def some_cups(rng: random.Random, ref: str, cups: int, what: Item, others: int) -> str:
    """So many cups of a line are to be different; `others`: how many are not."""
    n = count(cups) + rng.choice(["杯", "杯", "个"])
    lead = rng.choice(["其中", "其中", "里面", "有", "里头"])
    words = option_words(rng, what)
    verb = "" if words.startswith(("要", "加", "再", "不", "别", "放", "做")) else rng.choice(["", "要", "改成", "做"])
    text = rng.choice([ref, ref, ""]) + lead + n + verb + words + rng.choice(["", "吧", "", "谢谢"])
    if rng.random() < 0.25:
        rest = count(others) + "杯"
        text += rng.choice(["，", "，", " "]) + rng.choice(
            ["其他的不动", "剩下的照旧", f"另{rest}照原样", f"剩{rest}别动", "别的都一样", f"那{rest}还是一样"]
        )
    return text


def swap(rng: random.Random, old: str, new: str, ref: str) -> str:
    """One topping for another (also 珍珠奶茶 to 椰果奶茶)."""
    a, b = topping(rng, old), topping(rng, new)
    return str(rng.choice(SAY.swap)).format(a=a, b=b, ref=ref)


def replace(rng: random.Random, ref: str, name: str, new: str) -> str:
    """A line becomes another drink. name: what the old one is called."""
    return rng.choice(
        [
            f"{ref}换成{new}",
            f"{ref}换成{new}吧",
            f"不要{name}了，换成{new}",
            f"不要{name}了，换{new}",
            f"把{ref or name}换成{new}",
            f"{ref or name}改成{new}",
            f"{ref or name}不要了，换成{new}",
            f"{ref or name}不要了，改要{new}",
            f"还是换成{new}吧" if not ref else f"{ref}还是换成{new}吧",
            f"我不要{name}了，给我换{new}",
            f"{ref}能不能换成{new}",
            f"帮我把{ref or name}换一下，换成{new}",
            f"把{name}给我换成{new}",
            f"{name}换{new}",
            f"不要{name}，要{new}",
        ]
    )


def remove(rng: random.Random, ref: str, name: str, cups: int | None = None) -> str:
    if cups:
        n = quantity(rng, cups)
        if not ref and rng.random() < 0.5:
            return str(rng.choice(SAY.fewer)).format(n=n)
        return str(rng.choice(SAY.fewer_of)).format(n=n, ref=ref, target=ref or name, name=name)
    target = ref or name
    return str(rng.choice(SAY.remove)).format(target=target)


def by_turns(rng: random.Random, words: Sequence[str]) -> str:
    """The first …, the second …, of what was just ordered."""
    names = rng.choice(
        [["第一杯", "第二杯", "第三杯"], ["第一个", "第二个", "第三个"], ["前面那个", "后面那个"], ["前面的", "后面的"]]
    )
    if len(words) > len(names):
        names = ["第一杯", "第二杯", "第三杯"]
    return rng.choice(["，", "。", " "]) + rng.choice(["，", ""]).join(
        n + w for n, w in zip(names, words, strict=False)
    )


def refs(rng: random.Random, references: Sequence[str]) -> str:
    return rng.choice(["和", "跟", "、"]).join(references)


def all_change(rng: random.Random, what: Item) -> str:
    words = option_words(rng, what)
    lead = rng.choice(["都", "全部", "全都", "所有的都", "每杯都", "两杯都" if what.get("two") else "都", "通通"])
    verb = "" if words.startswith(("要", "加", "再", "不", "别", "放", "做")) else rng.choice(["要", "改成", "", "做"])
    return lead + verb + words + rng.choice(["", "吧", "谢谢"])


def that_one(rng: random.Random, it: Item) -> str:
    """An order that names no drink, after one was talked about."""
    n, options = it.get("quantity", 1), option_words(rng, it)
    if n == 1 and not options:
        return rng.choice(SAY.that)
    q = quantity(rng, n)
    lead = rng.choice(["那来", "来", "那要", "那就来", "给我来", "好，来", "要"])
    if rng.random() < 0.5 and said_options(it) and not it.get("toppings"):
        return lead + q + "".join(rng.choice(SAY.before[o]) for o in said_options(it)) + rng.choice(["", "吧", "的"])
    return lead + q + (rng.choice(["，", ""]) + options if options else "")


# ---- replies ----


def describe(line: Mapping[str, Any], defaults: Mapping[str, str]) -> str:
    """大杯少冰半糖珍珠奶茶加椰果两杯."""
    options = "".join(SAY.shown[line[k]] for k in ("size", "ice", "sugar") if line[k] != defaults[k])
    tops = "和".join(SAY.topping[t] for t in line["toppings"])
    return options + DRINK[line["drink"]] + ("加" + tops if tops else "") + count(line["quantity"]) + "杯"


def listed(parts: Sequence[str]) -> str:
    return "，".join(parts)


def price(value: float, alone: bool) -> str:
    return yuan(value) if alone else "一共" + yuan(value)


ALONE = SAY.after
