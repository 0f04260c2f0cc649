"""How Mandarin callers say things, and how the agent answers them."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

Item = dict[str, Any]
DIGITS = "零一二三四五六七八九"
NAMES: dict[str, list[str]] = {
    "pearl_milk_tea": ["珍珠奶茶"] * 6 + ["珍奶", "波霸奶茶", "珍珠奶", "bubble tea", "波霸"],
    "coconut_milk_tea": ["椰果奶茶"] * 6 + ["椰奶茶", "椰果的奶茶"],
    "pudding_milk_tea": ["布丁奶茶"] * 6 + ["布丁的奶茶"],
    "red_bean_milk_tea": ["红豆奶茶"] * 6 + ["红豆的奶茶"],
    "taro_milk_tea": ["芋圆奶茶"] * 6 + ["芋圆的奶茶"],
    "grass_jelly_milk_tea": ["仙草奶茶"] * 6 + ["仙草的奶茶"],
    "milk_tea": ["原味奶茶"] * 4 + ["奶茶", "奶茶", "普通奶茶", "原味的奶茶", "milk tea"],
    "brown_sugar_milk": ["黑糖鲜奶"] * 5 + ["脏脏茶", "脏脏茶", "黑糖奶", "黑糖牛奶"],
    "jasmine_green_tea": ["茉莉绿茶"] * 5 + ["茉绿", "茉莉花茶", "茉莉茶", "茉莉"],
    "four_seasons_tea": ["四季春茶"] * 3 + ["四季春", "四季春", "四季茶"],
    "oolong_tea": ["乌龙茶"] * 5 + ["乌龙", "oolong"],
    "lemon_black_tea": ["柠檬红茶"] * 4 + ["柠檬茶", "柠檬茶", "柠红", "lemon tea"],
    "passion_fruit_green_tea": ["百香果绿茶"] * 4 + ["百香绿", "百香果", "百香绿茶", "百香果茶"],
    "grapefruit_green_tea": ["葡萄柚绿茶"] * 4 + ["葡萄柚", "葡萄柚茶", "西柚绿茶"],
    "kumquat_lemon": ["金桔柠檬"] * 5 + ["金桔柠檬茶", "金桔", "金橘柠檬"],
    "mango_sago": ["杨枝甘露"] * 6 + ["芒果西米露"],
    "mango_smoothie": ["芒果冰沙"] * 5 + ["芒果沙冰", "mango smoothie"],
    "strawberry_milkshake": ["草莓奶昔"] * 5 + ["草莓昔", "草莓的奶昔", "strawberry milkshake"],
    "matcha_latte": ["抹茶拿铁"] * 5 + ["抹茶", "抹茶latte", "matcha latte", "matcha"],
    "americano": ["美式咖啡"] * 3 + ["美式", "美式", "美式", "americano", "冰美式", "黑咖啡"],
    "latte": ["拿铁咖啡"] * 2 + ["拿铁"] * 4 + ["latte", "咖啡拿铁"],
    "cocoa": ["热可可"] * 4 + ["可可", "热巧克力", "cocoa", "热可可"],
}
DRINK = {name: words[0] for name, words in NAMES.items()}
TOPPING = {
    "pearls": "珍珠",
    "coconut_jelly": "椰果",
    "pudding": "布丁",
    "red_bean": "红豆",
    "taro_balls": "芋圆",
    "grass_jelly": "仙草",
    "milk_foam": "奶盖",
}
SAID_TOPPING = {
    "pearls": ["珍珠"] * 5 + ["波霸"],
    "grass_jelly": ["仙草"] * 3 + ["仙草冻"],
    "milk_foam": ["奶盖"] * 4 + ["奶泡"],
}
SHOWN = {
    "medium": "中杯",
    "large": "大杯",
    "small": "小杯",
    "regular_ice": "正常冰",
    "less_ice": "少冰",
    "light_ice": "微冰",
    "no_ice": "去冰",
    "hot": "热",
    "full_sugar": "全糖",
    "seventy_sugar": "七分糖",
    "half_sugar": "半糖",
    "thirty_sugar": "三分糖",
    "no_sugar": "无糖",
}
# How a choice is said before the drink (少冰的…), and on its own (…，冰少一点).
BEFORE = {
    "medium": ["中杯", "中杯的", "中的"],
    "large": ["大杯", "大杯", "大杯的", "大的", "大号"],
    "small": ["小杯", "小杯", "小杯的", "小的"],
    "regular_ice": ["正常冰", "正常冰的", "冰的"],
    "less_ice": ["少冰", "少冰", "少冰的", "少放冰的"],
    "light_ice": ["微冰", "微冰", "微冰的"],
    "no_ice": ["去冰", "去冰", "去冰的", "不加冰的", "无冰", "不要冰的", "常温的"],
    "hot": ["热的", "热的", "热", "热饮的"],
    "full_sugar": ["全糖", "全糖的", "正常糖"],
    "seventy_sugar": ["七分糖", "七分糖的", "七分甜"],
    "half_sugar": ["半糖", "半糖", "半糖的", "五分糖"],
    "thirty_sugar": ["三分糖", "三分糖的", "三分甜", "微糖"],
    "no_sugar": ["无糖", "无糖的", "不加糖的", "不加糖", "不要糖的"],
}
AFTER = {
    "medium": ["中杯", "中杯的", "要中杯", "要中杯的"],
    "large": ["大杯", "大杯的", "要大杯", "要大杯的", "大的"],
    "small": ["小杯", "小杯的", "要小杯", "小的"],
    "regular_ice": ["正常冰", "要冰的", "冰正常", "冰量正常", "正常冰就好", "要正常冰"],
    "less_ice": ["少冰", "少冰", "冰少一点", "少放点冰", "少加冰", "要少冰", "冰少点", "少冰的"],
    "light_ice": ["微冰", "微冰", "要微冰", "一点点冰", "微微冰"],
    "no_ice": ["去冰", "去冰", "不要冰", "不加冰", "别加冰", "不要加冰", "别放冰", "去冰的", "不要放冰"],
    "hot": ["热的", "要热的", "做热的", "热", "做成热的"],
    "full_sugar": ["全糖", "正常糖", "甜度正常", "要全糖", "正常甜"],
    "seventy_sugar": ["七分糖", "七分甜", "要七分糖", "少糖"],
    "half_sugar": ["半糖", "半糖", "五分糖", "要半糖", "五分甜", "糖减半", "糖放一半", "半糖的"],
    "thirty_sugar": ["三分糖", "三分甜", "要三分糖", "微糖"],
    "no_sugar": ["无糖", "不要糖", "不加糖", "别放糖", "别加糖", "不要放糖", "不用加糖", "一点糖都不要"],
}
CATEGORY = {
    "coffee": (["咖啡"], ["americano", "latte"]),
    "green_tea": (["绿茶"], ["jasmine_green_tea", "passion_fruit_green_tea", "grapefruit_green_tea"]),
    "mango": (["芒果的", "芒果"], ["mango_sago", "mango_smoothie"]),
    "lemon": (["柠檬的", "柠檬"], ["lemon_black_tea", "kumquat_lemon"]),
    "tea": (["茶", "纯茶"], ["jasmine_green_tea", "four_seasons_tea", "oolong_tea"]),
}
UNSOLD = [
    "可乐",
    "薯条",
    "雪碧",
    "汉堡",
    "啤酒",
    "红酒",
    "橙汁",
    "苹果汁",
    "西瓜汁",
    "豆浆",
    "咖喱饭",
    "蛋糕",
    "面包",
    "鸡翅",
    "炸鸡",
    "披萨",
    "牛肉面",
    "矿泉水",
    "卡布奇诺",
    "摩卡",
    "冰淇淋",
    "三明治",
    "烤肠",
    "米饭",
    "热狗",
    "沙拉",
    "酸奶",
    "椰汁",
    "酸梅汤",
    "红牛",
    "王老吉",
    "茶叶蛋",
    "包子",
    "饺子",
    "烤串",
    "爆米花",
    "甜甜圈",
    "饼干",
    "巧克力",
    "coke",
    "果汁",
    "奶油蛋糕",
    "龙井",
    "普洱",
    "铁观音",
    "菊花茶",
    "水果捞",
    "双皮奶",
    "烧仙草",
    "手抓饼",
    "白酒",
    "纯牛奶",
]


def number(value: int) -> str:
    """一 to 九千九百九十九, as read aloud."""
    if value < 10:
        return DIGITS[value]
    if value < 20:
        return "十" + (DIGITS[value - 10] if value > 10 else "")
    text = ""
    rest, zero = value, False
    for unit, name in ((1000, "千"), (100, "百"), (10, "十"), (1, "")):
        digit, rest = divmod(rest, unit)
        if digit:
            lead = "两" if digit == 2 and unit >= 100 else DIGITS[digit]
            text += ("零" if zero and text else "") + lead + name
            zero = False
        else:
            zero = True
    return text


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
    return rng.choice(SAID_TOPPING.get(name, [TOPPING[name]]))


def toppings(rng: random.Random, names: Sequence[str]) -> str:
    names = list(names)
    rng.shuffle(names)
    if len(names) == 1 or rng.random() < 0.5:
        add = rng.choice(["加", "加", "加", "加个", "加一份", "再加", "多加", "要加", "加点", "放"])
        return add + rng.choice(["和", "跟", "", "、", "还有"]).join(topping(rng, n) for n in names)
    return rng.choice(["", "，"]).join(rng.choice(["加", "再加", "加个", "加份"]) + topping(rng, n) for n in names)


def said_options(item: Item) -> list[str]:
    return [item[key] for key in ("size", "ice", "sugar") if item.get(key)]


def item(rng: random.Random, it: Item) -> str:
    """One thing to order, in one of many word orders."""
    n = it.get("quantity", 1)
    q = quantity(rng, n) if n > 1 or rng.random() < 0.8 else rng.choice(["", "个", "杯", "一下"][:3])
    name = it.get("name") or rng.choice(NAMES[it["drink"]])
    options = said_options(it)
    rng.shuffle(options)
    cut = rng.choice([0, len(options), len(options), rng.randint(0, len(options))])
    before = "".join(rng.choice(BEFORE[o]) for o in options[:cut])
    if before and rng.random() < 0.25 and not before.endswith("的"):
        before += "的"
    after = [rng.choice(AFTER[o]) for o in options[cut:]]
    joint = rng.choice(["，", "", "，", " "])
    tops = it.get("toppings") or []
    # 珍珠奶茶加椰果, 加珍珠的奶茶
    front = ""
    if tops and rng.random() < 0.12:
        front = "加" + rng.choice(["和", ""]).join(topping(rng, t) for t in tops) + "的"
        tops = []
    style = rng.random()
    if style < 0.62:
        core = (q + before + front + name) if rng.random() < 0.8 else (before + q + front + name)
    elif style < 0.85 and q:
        core = before + front + name + rng.choice(["", "，", "来", "要"]) + q
    else:
        core = q + front + before + name
    if tops:
        after.insert(rng.randint(0, len(after)), toppings(rng, tops))
    rest = rng.choice(["，", "", "，"]).join(after)
    return core + (joint + rest if rest else "")


WANT = [
    "我要",
    "来",
    "给我来",
    "我想要",
    "我想喝",
    "要",
    "帮我点",
    "点",
    "请给我",
    "麻烦给我",
    "先来",
    "那就来",
    "我朋友要",
    "你好，我要",
    "你好，来",
    "我想点",
    "我来",
    "能不能给我",
    "可以给我来",
    "麻烦来",
    "整",
    "我需要",
    "帮我来",
    "嗯我要",
    "就要",
    "我就要",
    "那我要",
    "给我",
    "给我一下",
    "帮我做",
    "想要",
    "你好我想要",
    "请来",
    "我想买",
    "买",
    "我先点",
    "下单",
]
MORE = [
    "再来",
    "再要",
    "再加",
    "另外来",
    "还要",
    "然后再来",
    "然后要",
    "再给我来",
    "再点",
    "我还要",
    "再帮我加",
    "对了，再来",
]
END = [
    "",
    "",
    "",
    "",
    "",
    "吧",
    "谢谢",
    "，谢谢",
    "就行",
    "就好",
    "可以吗",
    "好吗",
    "，麻烦了",
    "哦",
    "呀",
    "，打包",
    "，快一点",
]
AND = [
    "，",
    "，",
    "，再来",
    "，再要",
    "和",
    "，还有",
    "，然后",
    "跟",
    "，另外要",
    "，外加",
    "再加",
    "，还要",
    " ",
    "，给我朋友来",
    "，我朋友要",
    "，我老婆要",
    "，我老公要",
    "，我女儿要",
    "，他要",
]
JOINT = ["，", "，", "。", "，然后", " ", "，还有"]
BEFORE_ORDER = [
    "今天好热，",
    "我有点渴，",
    "我想想啊，",
    "嗯让我看看，",
    "好久没喝了，",
    "今天有点冷，",
    "我看看啊，",
    "随便吧，",
    "天气这么热，",
    "我朋友推荐的，",
    "哎呀好困，",
    "听说你们家不错，",
]
SAME_N = [
    "再来{n}一样的",
    "一样的再来{n}",
    "再来{n}",
    "同样的再要{n}",
    "再加{n}",
    "跟刚才一样的来{n}",
    "再要{n}同样的",
    "再多来{n}",
]
MISHEARD = [
    "不是{y}，是{x}",
    "我说的是{x}",
    "我要的是{x}，不是{y}",
    "听错了，是{x}",
    "不对，是{x}",
    "我说{x}",
    "不是{y}，我要{x}",
    "错了，{x}",
    "你听错了，我要的是{x}",
    "是{x}不是{y}",
]
OLD_TO_NEW = [
    "{old}改成{new}",
    "把{old}换成{new}",
    "{old}换{new}",
    "不要{old}了，改{new}",
    "不要{old}，要{new}",
    "{old}那杯改成{new}",
    "那杯{old}换成{new}吧",
    "把{old}那杯换成{new}",
]
BACK = [
    "还是要{old}吧",
    "还是{old}吧",
    "算了，还是{old}",
    "换回{old}",
    "还是换回来吧",
    "我还是想要{old}",
    "改回来吧，要{old}",
    "不换了，还是要{old}",
]
NO_MORE = ["不用了", "没有了", "不要了", "没了", "不用", "不用了谢谢", "没有", "就这些", "不需要了", "够了"]
NO = [
    "不对，",
    "不对不对，",
    "哦不，",
    "不，",
    "错了，",
    "啊不对，",
    "等一下，",
    "说错了，",
    "不是，",
    "还是",
    "算了，还是",
    "嗯不，",
]


def wish(rng: random.Random, more: bool) -> str:
    return rng.choice(["", "", *WANT]) if not more or rng.random() < 0.3 else rng.choice(MORE)


def order(rng: random.Random, items: Sequence[Item], more: bool) -> str:
    text = wish(rng, more)
    for index, it in enumerate(items):
        if index:
            text += rng.choice(AND) if rng.random() < 0.8 else "，"
        text += item(rng, it)
    return text + rng.choice(END)


def each(rng: random.Random, items: Sequence[Item], n: int, more: bool) -> str:
    names = [
        item(rng, {**it, "quantity": 1}) if it.get("bare") is False else rng.choice(NAMES[it["drink"]]) for it in items
    ]
    body = rng.choice(["，", "、", "和", "跟"]).join(names[:-1]) + rng.choice(["和", "跟", "、", "还有"]) + names[-1]
    q = quantity(rng, n) if rng.random() < 0.9 else count(n) + "杯"
    if rng.random() < 0.25:
        return wish(rng, more) + "各" + q + body + rng.choice(END)
    return wish(rng, more) + body + rng.choice(["各", "各", "，各", "一样", "各来", "，每样"]) + q + rng.choice(END)


def for_all(rng: random.Random, value: str, n: int) -> str:
    word = rng.choice(AFTER[value])
    lead = rng.choice(["都", "都", "全部", "全都", "两杯都" if n == 2 else "都", "每杯都"])
    return (
        rng.choice(["，", "，", " "]) + lead + ("" if word[0] in "要不别做加" else rng.choice(["要", "", "做"])) + word
    )


def varieties(rng: random.Random, drink: str, parts: Sequence[Item], key: str) -> str:
    name = rng.choice(NAMES[drink])
    after = rng.random() < 0.6
    bits = [
        count(p["quantity"]) + rng.choice(["杯", "杯", "个"]) + rng.choice(AFTER[p[key]] if after else BEFORE[p[key]])
        for p in parts
    ]
    body = rng.choice(["，", "", "，", "和"]).join(bits)
    if after:
        return name + rng.choice(["，", "", "要"]) + body
    return body + rng.choice(["的", "", "，都是", "，"]).replace("的", "的" if not body.endswith("的") else "") + name


def option_words(rng: random.Random, it: Item) -> str:
    words = [rng.choice(AFTER[o]) for o in said_options(it)]
    rng.shuffle(words)
    if it.get("toppings"):
        words.append(toppings(rng, it["toppings"]))
    return rng.choice(["", "，"]).join(words)


def split(rng: random.Random, shared: Item, parts: Sequence[Item], more: bool, some: bool) -> str:
    """两杯…，一杯去冰，一杯少冰; some: only the first part is named (其中一杯去冰)."""
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
        words = option_words(rng, part) or rng.choice(["正常", "正常的", "什么都不改", "正常做"])
        bits.append(lead + n + rng.choice(["", "", "要"]) * (not words.startswith("要")) + words)
    return head + rng.choice(["，", "，", " "]) + rng.choice(["，", "，", ""]).join(bits) + rng.choice(END[:8])


def corrected_order(rng: random.Random, wrong: Item, right: Item, what: str, more: bool) -> str:
    """我要大杯，不对，中杯."""
    no = rng.choice(["，", "，", "", "。"]) + rng.choice(NO)
    head = wish(rng, more) + item(rng, wrong)
    if what == "drink":
        tail = rng.choice(["", "要", "来", "换成", "是"]) + rng.choice(NAMES[right["drink"]])
    elif what == "quantity":
        tail = rng.choice(["", "要", "是"]) + quantity(rng, right["quantity"])
    else:
        tail = rng.choice(["", "", "要", "是"]) + rng.choice(BEFORE[right[what]])
    return head + no + tail + rng.choice(END[:9])


ORDINAL = ["", "一", "二", "三", "四", "五", "六", "七", "八", "九", "十"]


def reference(rng: random.Random, how: str, line: Mapping[str, Any], number_: int, total: int) -> str:
    """How a line is meant: latest, ordinal, name, attribute, other, middle, last, only."""
    name = rng.choice(NAMES[line["drink"]])
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
        return rng.choice(["", "", "那杯"] if "那" not in tail else [""]) + attribute(line) + tail
    return rng.choice(
        [name, name, name + "那杯", "那杯" + name, "那个" + name, "刚才那杯" + name, "我那杯" + name, "那" + name]
    )


def attribute(line: Mapping[str, Any]) -> str:
    return SHOWN[line["attribute"]]


PUT = ["改成", "换成", "要", "改", "做", "来", "改为", "给我做成", "帮我改成", "换"]
BA = ["", "", "", "把", "帮我把", "麻烦把"]


def change(rng: random.Random, ref: str, what: Item) -> str:
    """Other choices for a line: size, ice, sugar, quantity, add_toppings, remove_toppings."""
    bits = []
    keys = [k for k in ("size", "ice", "sugar", "quantity", "add_toppings", "remove_toppings") if what.get(k)]
    rng.shuffle(keys)
    ba = rng.choice(BA) if ref else ""
    for index, key in enumerate(keys):
        verb = rng.choice(PUT) if index == 0 or rng.random() < 0.3 else rng.choice(["", "要"])
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
            bits.append(rng.choice(AFTER[what[key]]))
        else:
            bits.append(verb + rng.choice(BEFORE[what[key]]))
    text = bits[0] + "".join(rng.choice(["，", "，", ""]) + b for b in bits[1:])
    lead = rng.choice(["", "", "", "", "还是", "我要", "那", "嗯", "等一下，", "不对，", "对了，", "我说的是", "麻烦"])
    if lead in ("还是", "我说的是") and ref:
        lead = ""
    return lead + ba + ref + text + rng.choice(["", "", "吧", "吧", "谢谢", "可以吗", "好了", "行吗"])


def some_cups(rng: random.Random, ref: str, cups: int, what: Item) -> str:
    n = count(cups) + rng.choice(["杯", "杯", "个"])
    lead = rng.choice(["其中", "其中", "里面", "有", "里头"])
    words = option_words(rng, what)
    verb = "" if words.startswith(("要", "加", "再", "不", "别", "放", "做")) else rng.choice(["", "要", "改成", "做"])
    return (
        rng.choice(["", "", "把"]) * 0
        + rng.choice([ref, ref, ""])
        + lead
        + n
        + verb
        + words
        + rng.choice(["", "吧", "", "谢谢"])
    )


def swap(rng: random.Random, old: str, new: str, ref: str) -> str:
    """One topping for another (also 珍珠奶茶 to 椰果奶茶)."""
    a, b = topping(rng, old), topping(rng, new)
    return rng.choice(
        [
            f"不要{a}了，换成{b}",
            f"不要{a}，换{b}",
            f"{ref}{a}换成{b}",
            f"把{a}换成{b}",
            f"{ref}{a}改成{b}吧",
            f"不要{a}，要{b}",
            f"{ref}不要{a}了，改{b}",
            f"还是要{b}吧，不要{a}",
            f"{a}不要了，加{b}",
            f"{b}吧，{a}不要",
        ]
    )


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
        return rng.choice(
            [
                f"少{n}{ref}",
                f"{ref or name}去掉{n}",
                f"减{n}{ref}",
                f"{ref or name}少要{n}",
                f"退{n}{name}",
                f"{name}不要{n}了",
                f"取消{n}{name}",
                f"{name}少来{n}",
            ]
        )
    target = ref or name
    return rng.choice(
        [
            f"{target}不要了",
            f"不要{target}了",
            f"把{target}去掉",
            f"{target}取消",
            f"取消{target}",
            f"{target}不要",
            f"把{target}删掉",
            f"{target}帮我取消掉",
            f"算了，{target}不要了",
            f"{target}退了吧",
            f"去掉{target}",
            f"删掉{target}吧",
            f"{target}就不要了吧",
            f"{target}不用了",
        ]
    )


def all_change(rng: random.Random, what: Item) -> str:
    words = option_words(rng, what)
    lead = rng.choice(["都", "全部", "全都", "所有的都", "每杯都", "两杯都" if what.get("two") else "都", "通通"])
    verb = "" if words.startswith(("要", "加", "再", "不", "别", "放", "做")) else rng.choice(["要", "改成", "", "做"])
    return lead + verb + words + rng.choice(["", "吧", "谢谢"])


SIMPLE: dict[str, list[str]] = {
    "clear": [
        "全部取消",
        "全部不要了",
        "都不要了",
        "取消订单",
        "清空重新来",
        "全部取消重来",
        "都取消吧",
        "重新点",
        "清空",
        "我都不要了",
        "全都不要了",
        "算了都不要了",
        "从头来",
        "重新来过",
        "帮我全部删掉",
        "把订单取消了吧",
        "清空购物车",
        "全部重来",
        "所有的都不要了",
        "刚才点的都不要了",
        "都删了吧",
        "不要了全部取消",
    ],
    "read_back": [
        "重复一下我点了什么",
        "我点了什么",
        "帮我念一遍",
        "确认一下订单",
        "我都点了些什么",
        "现在有哪些",
        "再说一遍我的订单",
        "核对一下",
        "念一下我的单子",
        "我刚才点了啥",
        "看看我的单",
        "订单里有什么",
        "我一共点了几杯",
        "帮我核对一下",
        "报一下我的订单",
        "都有什么了",
        "我要了什么来着",
        "购物车里有什么",
        "重复一遍",
        "总共点了哪些",
    ],
    "finish": [
        "就这些",
        "就这些了",
        "没有了",
        "没别的了",
        "不要别的了",
        "好了就这些",
        "就这样",
        "就这样吧",
        "够了",
        "可以了",
        "没了",
        "就要这些",
        "不用了就这些",
        "先这样",
        "行，就这些",
        "点好了",
        "这些就够了",
        "没有其他的了",
        "没有了谢谢",
        "不用了谢谢",
        "没有别的了",
        "嗯就这些",
        "其他不用了",
        "就这么多",
    ],
    "total": [
        "一共多少钱",
        "多少钱",
        "总共多少",
        "多少钱一共",
        "合计多少钱",
        "总共多少钱",
        "加起来多少钱",
        "一共几块",
        "我要付多少钱",
        "总价多少",
        "这些一共多少",
        "现在多少钱了",
        "算一下多少钱",
        "一共是多少",
    ],
    "place": [
        "下单",
        "下单吧",
        "买单",
        "确认下单",
        "可以下单了",
        "结账",
        "确认订单",
        "就这些，下单",
        "帮我下单",
        "付款",
        "提交订单",
        "没问题，下单吧",
        "好的下单",
        "就这样下单吧",
        "我要结账",
        "埋单",
        "确认",
        "就这些，买单",
        "给我下单",
        "可以，下单",
        "下单谢谢",
        "麻烦下单",
        "结一下账",
        "直接下单",
        "好，就这么下单",
    ],
    "yes": [
        "对",
        "好的",
        "嗯",
        "可以",
        "是的",
        "没错",
        "确认",
        "行",
        "好",
        "对的",
        "没问题",
        "ok",
        "嗯可以",
        "对，没问题",
        "好啊",
        "下单吧",
        "可以的",
        "是",
        "嗯嗯",
        "要",
        "对对对",
        "好的好的",
        "行吧",
        "就这样",
    ],
    "no": [
        "不用了",
        "先不",
        "不要",
        "不",
        "等一下",
        "先等等",
        "不了",
        "还没有",
        "不是",
        "先别下单",
        "不对",
        "算了",
        "暂时不用",
        "先不要",
        "等等",
        "不行",
    ],
    "menu": [
        "有什么喝的",
        "你们有什么",
        "都有什么",
        "有什么推荐的",
        "推荐一下",
        "什么好喝",
        "有什么好喝的",
        "菜单有什么",
        "有哪些奶茶",
        "卖什么",
        "你推荐什么",
        "有什么招牌",
        "什么卖得最好",
        "介绍一下",
        "给我推荐一杯",
        "不知道喝什么好",
        "有啥好喝的",
        "你们家什么最好喝",
        "有哪些饮料",
    ],
    "greet": [
        "你好",
        "您好",
        "喂",
        "哈喽",
        "嗨",
        "在吗",
        "喂你好",
        "hello",
        "你好啊",
        "有人吗",
        "早上好",
        "晚上好",
        "下午好",
        "hi",
        "喂喂",
        "能听见吗",
        "我想点单",
        "我要点单",
        "我想点杯喝的",
        "点单",
        "hello我想点单",
        "我想买杯喝的",
        "可以点单吗",
    ],
    "thanks": [
        "谢谢",
        "谢谢你",
        "多谢",
        "谢啦",
        "辛苦了",
        "好的谢谢",
        "感谢",
        "thank you",
        "谢了",
        "太好了",
        "你真好",
        "服务不错",
    ],
    "bye": ["再见", "拜拜", "不用了拜拜", "没事了", "回见", "挂了", "先这样，再见", "bye bye"],
    "wait": [
        "我想想",
        "等一下",
        "让我想想",
        "等等",
        "稍等",
        "我看看",
        "等会儿",
        "我再想想",
        "嗯我想一下",
        "先等一下",
        "给我点时间",
        "我看一下菜单",
        "嗯让我看看",
        "别急",
        "我问问我朋友",
    ],
    "ack": ["嗯", "好的", "好", "嗯嗯", "哦", "行", "知道了", "哦哦", "好嘞", "是", "了解", "对", "可以", "ok", "嗯好"],
    "abuse": [
        "你有病吧",
        "滚",
        "傻子",
        "你是不是傻",
        "笨死了",
        "什么破机器",
        "你真笨",
        "烦死了",
        "神经病",
        "垃圾",
        "气死我了",
        "你听不懂人话吗",
        "蠢货",
        "闭嘴",
        "你个笨蛋",
        "服务太差了",
        "我要投诉",
    ],
    "who": [
        "你是谁",
        "你是真人吗",
        "你叫什么",
        "你是机器人吗",
        "你是人工智能吗",
        "你会做什么",
        "你是男的女的",
        "你几岁了",
        "你是客服吗",
        "你能干嘛",
        "转人工",
        "你住在哪",
    ],
    "chat": [
        "今天天气真好",
        "今天好热啊",
        "外面下雨了",
        "讲个笑话",
        "你吃饭了吗",
        "我心情不好",
        "现在几点",
        "今天星期几",
        "给我唱首歌",
        "帮我查一下天气",
        "你喜欢喝什么",
        "我好累",
        "你们几点关门",
        "你们店在哪里",
        "有没有座位",
        "厕所在哪",
        "wifi密码多少",
        "能不能开发票",
        "你知道北京吗",
        "一加一等于几",
        "帮我打车",
        "明天会下雨吗",
        "股票涨了吗",
        "我失恋了",
        "最近有什么电影",
        "能送外卖吗",
        "要等多久",
        "你好聪明",
        "昨天的球赛看了吗",
        "帮我写首诗",
        "有优惠吗",
        "能刷卡吗",
        "可以打折吗",
        "停车方便吗",
        "孩子在哭",
        "我在开车",
        "我朋友还没到",
    ],
    "options": [
        "有什么甜度",
        "冰量可以选吗",
        "甜度有哪些",
        "可以选冰吗",
        "糖度怎么选",
        "有几种冰量",
        "冰可以怎么选",
        "能选甜度吗",
    ],
    "sizes": ["有几种杯型", "有大杯吗", "杯子有多大的", "有哪些规格", "大小怎么选", "大杯多少钱", "大杯贵多少"],
    "extras": ["可以加什么料", "有什么加料", "能加什么", "小料有哪些", "配料有什么", "加料有哪些", "有什么小料"],
    "same": [
        "再来一杯一样的",
        "一样的再来一杯",
        "同样的再来一杯",
        "再来一杯",
        "再来一份一样的",
        "跟刚才一样再来一杯",
        "照样再来一杯",
        "一样的再要一杯",
        "再来杯一样的",
        "同样的再要一份",
        "再要一杯一样的",
        "复制一杯",
    ],
    "order_number": [
        "取餐号多少",
        "我的号码是多少",
        "我是几号",
        "取餐号是几",
        "多少号来着",
        "号码再说一遍",
        "我的取餐号呢",
    ],
}
DOUBLE = [
    "改成{n}",
    "要{n}",
    "来{n}吧",
    "{n}吧",
    "那个要{n}",
    "还是{n}吧",
    "变成{n}",
    "多要点，{n}",
    "我要{n}",
    "{ref}要{n}",
    "{ref}改成{n}",
    "不是{old}，是{n}",
    "{old}太多了，{n}就好",
    "{n}才对",
    "{ref}来{n}",
]
PRICE = [
    "{x}多少钱",
    "{x}多少钱一杯",
    "{x}怎么卖",
    "{x}什么价",
    "一杯{x}多少钱",
    "{x}几块钱",
    "请问{x}多少钱",
    "{x}贵不贵",
    "{x}价格是多少",
]
HAVE = [
    "有没有{x}",
    "有{x}吗",
    "你们有{x}吗",
    "{x}有吗",
    "{x}还有吗",
    "你们卖{x}吗",
    "有{x}没有",
    "请问有{x}吗",
    "{x}卖完了吗",
    "今天有{x}吗",
    "能点{x}吗",
    "{x}有没有啊",
]
HOT = [
    "{x}能做热的吗",
    "{x}有热的吗",
    "{x}可以去冰吗",
    "{x}能选冰量吗",
    "{x}有什么选择",
    "{x}可以少冰吗",
    "{x}冰量怎么选",
]
THAT = [
    "那来一杯",
    "来一杯",
    "那就来一杯吧",
    "给我来一杯",
    "好，来一杯",
    "那要一杯",
    "行，给我一杯",
    "就要这个",
    "那就这个吧",
    "要一杯",
    "好的，来一杯",
    "就它了",
    "那我要这个",
    "来一个吧",
    "那给我来一个",
    "可以，来一杯吧",
]
PARTIAL = [
    "我要一杯",
    "来一杯",
    "我想要",
    "我要",
    "给我来个",
    "我想喝",
    "嗯，我要那个",
    "我要两杯",
    "来个",
    "我想点一杯",
    "帮我来一杯那个",
    "我要一个",
    "呃，来一杯",
]
NOT_THERE = ["不好意思，没有这一杯。", "不好意思，购物车里没有这一杯。"]
UNCLEAR_LINE = "要去掉哪一杯？"


def price_question(rng: random.Random, x: str) -> str:
    return rng.choice(PRICE).format(x=x)


def that_one(rng: random.Random, it: Item) -> str:
    """An order that names no drink, after one was talked about."""
    n, options = it.get("quantity", 1), option_words(rng, it)
    if n == 1 and not options:
        return rng.choice(THAT)
    q = quantity(rng, n)
    lead = rng.choice(["那来", "来", "那要", "那就来", "给我来", "好，来", "要"])
    if rng.random() < 0.5 and said_options(it) and not it.get("toppings"):
        return lead + q + "".join(rng.choice(BEFORE[o]) for o in said_options(it)) + rng.choice(["", "吧", "的"])
    return lead + q + (rng.choice(["，", ""]) + options if options else "")


# ---- replies ----


def describe(line: Mapping[str, Any], defaults: Mapping[str, str]) -> str:
    """大杯少冰半糖珍珠奶茶加椰果两杯."""
    options = "".join(SHOWN[line[k]] for k in ("size", "ice", "sugar") if line[k] != defaults[k])
    tops = "和".join(TOPPING[t] for t in line["toppings"])
    return options + DRINK[line["drink"]] + ("加" + tops if tops else "") + count(line["quantity"]) + "杯"


def listed(parts: Sequence[str]) -> str:
    return "，".join(parts)


def price(value: float, alone: bool) -> str:
    return yuan(value) if alone else "一共" + yuan(value)


TEXT = {
    "confirm": "好的，{items}，{price}。",
    "confirm_changed": "好的，改成{items}，{price}。",
    "confirm_replaced": "好的，换成{items}，{price}。",
    "removed": "好的，{items}不要了，{price}。",
    "removed_all": "好的，{items}不要了。还想喝点什么？",
    "done": "好的，改好了，{price}。",
    "cleared": "好的，都取消了。想喝点什么？",
    "read_back": "您点了{items}，{price}。可以下单吗？",
    "total": "{price}。",
    "empty": "您还没有点东西。想喝点什么？",
    "placed": "好的，下单了，取餐号{number}，{price}。",
    "item": "{x}{yuan}一杯。",
    "topping": "加{x}{yuan}。",
    "have": "有的，{x}{yuan}一杯，要来一杯吗？",
    "have_topping": "有的，加{x}{yuan}。",
    "ice": "{x}可以选{ice}，{yuan}一杯。",
    "ice_all": "可以的，{x}{yuan}一杯，冰量可以选。",
    "sold_out": "不好意思，{x}卖完了。换一个好吗？",
    "quantity": "不好意思，数量我没听清，您要几杯？",
    "no_item": "不好意思，这个我们没有。想喝点别的吗？",
    "also_no_item": "好的，{items}，{price}。另外那个我们没有。",
    "which": "您要{items}？",
    "not_possible": "{x}不能这样做，可以选{items}。",
    "what": "好的，您想喝什么？",
    "menu": "有{items}，还有果茶和咖啡。您想喝哪种？",
    "greet": "您好，想喝点什么？",
    "thanks": "不客气。",
    "bye": "再见，欢迎再来。",
    "wait": "好的，您慢慢想。",
    "ack": "好的，还要别的吗？",
    "ack_empty": "好的，想喝点什么？",
    "hold": "好的，先不下单。还要改什么吗？",
    "abuse": "不好意思，我没帮好您。您想喝点什么？",
    "who": "我是点单助手，可以帮您点饮料。",
    "chat": "不好意思，我只能帮您点饮料。想喝点什么？",
    "unclear": "不好意思，我没听清，请再说一遍。",
    "options": "冰量有正常冰、少冰、微冰、去冰和热的，甜度有全糖、七分糖、半糖、三分糖和无糖。",
    "sizes": "有中杯、大杯和小杯。",
    "extras": "可以加珍珠、椰果、布丁、红豆、芋圆、仙草和奶盖。",
    "no_line": "不好意思，没有这一杯。",
    "which_line": "您说的是哪一杯？",
    "no_number": "您还没有下单。",
    "number": "您的取餐号是{number}。",
    "no_topping": "这杯没有加{x}。",
}
