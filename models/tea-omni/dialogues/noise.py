"""Recognition errors: what a recogniser makes of what was said."""

from __future__ import annotations

import functools
import random
import re

from pypinyin import Style, lazy_pinyin

HEARD_ZH = {
    "少冰": ["小冰", "手冰", "烧冰", "少兵", "少病", "少饼", "烧饼", "受冰", "少宾"],
    "去冰": ["取冰", "去病", "去兵", "曲冰", "去并", "娶冰", "趣冰"],
    "微冰": ["威冰", "为冰", "微兵", "喂冰", "围冰", "薇冰"],
    "正常冰": ["正常兵", "正长冰", "整常冰"],
    "珍珠": ["真珠", "珍猪", "针珠", "珍住", "真主", "增珠", "珍主"],
    "椰果": ["野果", "叶果", "也过", "夜果", "椰锅", "爷果", "也果"],
    "布丁": ["补丁", "不定", "布钉", "部丁", "不丁", "步丁"],
    "芋圆": ["鱼圆", "鱼丸", "玉圆", "芋园", "预元", "玉元", "浴缘", "芋元"],
    "仙草": ["鲜草", "先草", "仙操", "线草", "仙曹"],
    "红豆": ["红斗", "洪豆", "红都", "弘豆"],
    "奶盖": ["乃盖", "奶该", "耐盖", "来盖", "奶钙"],
    "奶茶": ["乃茶", "来茶", "奶叉", "奶查", "拿茶", "耐茶", "奶差", "那茶"],
    "四季春": ["四季村", "四级春", "四季纯", "司机春", "世纪春", "四季唇"],
    "茉莉": ["末莉", "莫莉", "茉丽", "魔力", "墨丽"],
    "乌龙": ["乌隆", "五龙", "无龙", "物龙", "污龙"],
    "半糖": ["半堂", "办糖", "半塘", "版糖", "搬糖", "半汤", "半躺"],
    "全糖": ["全堂", "全塘", "拳糖", "全汤", "全躺"],
    "无糖": ["五糖", "无堂", "无汤", "吴糖", "物糖"],
    "三分糖": ["三分堂", "三分汤", "山分糖", "3分糖"],
    "七分糖": ["七分堂", "七分汤", "7分糖", "期分糖"],
    "柠檬": ["宁檬", "您们", "林檬", "柠蒙", "宁蒙"],
    "百香": ["白香", "百想", "摆香", "白箱", "百乡"],
    "葡萄柚": ["葡萄又", "葡萄油", "葡萄有", "葡萄幼"],
    "金桔": ["金菊", "金局", "金橘", "金句", "今桔"],
    "杨枝甘露": ["杨之甘露", "杨汁甘露", "羊脂甘露", "杨枝干露", "洋枝甘露", "杨芝甘露", "阳之甘露"],
    "冰沙": ["冰砂", "冰杀", "兵沙", "冰傻"],
    "奶昔": ["奶西", "奶吸", "乃昔", "奶息", "奶系"],
    "抹茶": ["末茶", "磨茶", "莫茶", "墨茶", "摸茶"],
    "拿铁": ["拿贴", "那铁", "哪铁", "纳铁", "拿帖", "那贴"],
    "美式": ["美是", "每是", "美食", "没事儿", "美士"],
    "可可": ["渴渴", "科科", "可口"],
    "黑糖": ["黑堂", "黑汤", "嘿糖"],
    "鲜奶": ["先奶", "仙奶", "鲜乃"],
    "脏脏茶": ["赃赃茶", "藏藏茶", "张张茶"],
    "大杯": ["大北", "大被", "打杯", "大背"],
    "中杯": ["终杯", "钟杯", "中北", "中被"],
    "小杯": ["小北", "小被", "晓杯"],
    "一杯": ["一倍", "1杯", "一悲", "一北", "义杯", "一贝"],
    "两杯": ["2杯", "两倍", "俩杯", "两北", "二杯", "梁杯"],
    "三杯": ["3杯", "三倍", "三北", "山杯"],
    "四杯": ["4杯", "四倍"],
    "五杯": ["5杯", "五倍"],
    "换成": ["还成", "换城", "唤成", "患成"],
    "改成": ["改城", "盖成", "该成"],
    "热的": ["热得", "热地"],
    "不要": ["不用要", "布要", "别要", "不药"],
    "加": ["家", "佳", "嘉"],
    "刚才": ["刚刚", "刚材", "钢材"],
    "第一杯": ["第1杯", "地一杯"],
    "第二杯": ["第2杯", "地二杯"],
    "那杯": ["哪杯", "那被", "那北"],
    "下单": ["下蛋", "下担", "夏单", "吓单"],
    "买单": ["卖单", "麦单"],
}
FILLERS_ZH = ["嗯，", "那个，", "呃", "就是", "啊，", "那个", "嗯", "额，", "这个，", "诶，", "哎，", "然后"]
DROPPED_ZH = ["的", "我", "要", "给", "帮", "请", "一下", "了", "吧", "再", "就", "来", "那"]
HEARD_EN = {
    "ice": ["eyes", "rice", "is", "eye", "nice"],
    "less": ["lets", "lace", "list", "lest", "last"],
    "tea": ["t", "tee", "teas", "key", "team"],
    "teas": ["tease", "tees", "t's", "tea's"],
    "pearl": ["purl", "pear", "girl", "pearls", "perl", "pro"],
    "pearls": ["pearl", "pears", "girls", "purls", "perls"],
    "matcha": ["matter", "macha", "much a", "match a", "maccha", "mach a", "mocha"],
    "latte": ["late", "latter", "lotte", "lattes", "la tay", "lattay", "lata"],
    "lattes": ["lattice", "latters", "latte", "ladies"],
    "oolong": ["oh long", "ulong", "oolang", "along", "wu long", "u long"],
    "jasmine": ["jasmin", "jazzmin", "jasmines", "jas mine"],
    "taro": ["tarot", "tarrow", "tara", "taru", "terra"],
    "boba": ["bobo", "bubba", "bober", "boa", "bowba"],
    "bubble": ["bubbles", "babble", "double"],
    "seasons": ["season", "seasonings"],
    "four": ["for", "4", "fore"],
    "two": ["to", "too", "2"],
    "one": ["1", "won", "a"],
    "three": ["3", "free", "tree"],
    "large": ["larch", "lodge", "larger", "lard"],
    "small": ["smaller", "smell", "mall"],
    "medium": ["median", "midium"],
    "half": ["have", "hav", "halve", "hoff"],
    "sugar": ["sugars", "shugar", "sucre"],
    "jelly": ["gelly", "jolly", "jerry", "jellies"],
    "pudding": ["putting", "puddin", "padding"],
    "kumquat": ["cumquat", "come quat", "kumkwat", "conquered"],
    "sago": ["saga", "say go", "sego", "cigar"],
    "pomelo": ["pomello", "pamelo", "pomela"],
    "mango": ["mangle", "mangos", "manga"],
    "americano": ["american oh", "americana", "amerikano", "american"],
    "grapefruit": ["grape fruit", "great fruit"],
    "cocoa": ["coco", "cuckoo", "coca", "koko"],
    "coconut": ["coco nut", "coconuts"],
    "smoothie": ["smoothy", "smoothies", "smoothly"],
    "milkshake": ["milk shake", "milkshakes"],
    "grass": ["grasp", "glass", "gras"],
    "milk": ["milks", "melk", "mill"],
    "passion": ["passions", "fashion"],
    "lemon": ["lemons", "lemmon", "let men"],
    "strawberry": ["straw berry", "strawberries"],
    "foam": ["phone", "form", "foe"],
    "light": ["like", "lite", "right"],
    "no": ["know", "now"],
    "hot": ["hut", "heart", "hart"],
    "black": ["back", "blacks"],
    "brown": ["browne", "round"],
    "plain": ["plane"],
    "original": ["originally", "the original"],
    "without": ["with out"],
    "add": ["ad", "and"],
    "make": ["mate", "may"],
    "with": ["whiff", "which", "width"],
}
FILLERS_EN = ["um, ", "uh, ", "well, ", "so, ", "okay, ", "like ", "yeah, ", "erm, ", "hmm, ", "oh, ", "so um "]
DROPPED_EN = {"a", "the", "with", "of", "and", "to", "please", "i", "can", "get"}
HAN = re.compile(r"[一-鿿]")


@functools.cache
def common_characters() -> list[str]:
    """The 3,755 characters of GB 2312's first level."""
    pairs = (bytes([row, column]) for row in range(0xB0, 0xD8) for column in range(0xA1, 0xFF))
    return [pair.decode("gb2312") for pair in pairs if pair not in {bytes([0xD7, c]) for c in range(0xFA, 0xFF)}]


def near(syllable: str) -> str:
    """A syllable without what recognisers confuse: zh z, ch c, sh s, l n, ing in, eng en, ang an."""
    syllable = syllable.replace("zh", "z").replace("ch", "c").replace("sh", "s")
    if syllable.startswith("l"):
        syllable = "n" + syllable[1:]
    return syllable[:-1] if syllable.endswith("ng") else syllable


@functools.cache
def _sounds() -> tuple[dict[str, list[str]], dict[str, list[str]], dict[str, str]]:
    exact: dict[str, list[str]] = {}
    alike: dict[str, list[str]] = {}
    sound: dict[str, str] = {}
    for character in common_characters():
        syllable = lazy_pinyin(character, style=Style.NORMAL)[0]
        sound[character] = syllable
        exact.setdefault(syllable, []).append(character)
        alike.setdefault(near(syllable), []).append(character)
    return exact, alike, sound


def homophone(rng: random.Random, character: str) -> str:
    exact, alike, sound = _sounds()
    syllable = sound.get(character)
    if syllable is None or character in "一二两三四五六七八九十":
        return character
    return rng.choice(exact[syllable] if rng.random() < 0.75 else alike[near(syllable)])


def zh(rng: random.Random, text: str) -> str:
    """A Mandarin utterance as it is recognised."""
    if rng.random() < 0.35:
        return text + rng.choice(["", "", "。"])
    if rng.random() < 0.45:
        keys = [k for k in HEARD_ZH if k in text]
        for key in rng.sample(keys, min(len(keys), rng.choice([1, 1, 2]))):
            text = text.replace(key, rng.choice(HEARD_ZH[key]), 1)
    rate = rng.choice([0, 0, 0, 0.04, 0.08, 0.15])
    if rate:
        text = "".join(homophone(rng, c) if HAN.match(c) and rng.random() < rate else c for c in text)
    if rng.random() < 0.2:
        dropped = rng.choice(DROPPED_ZH)
        if text.replace(dropped, "", 1).strip("，。"):
            text = text.replace(dropped, "", 1)
    text = text.replace("，", rng.choice(["，", "，", ",", " ", "", "", "。", "、"]))
    if rng.random() < 0.15:
        text = rng.choice(FILLERS_ZH) + text
    if rng.random() < 0.08 and len(text) > 4:
        cut = rng.randint(1, len(text) - 1)
        text = text[:cut] + rng.choice(["，嗯，", "，那个，", "呃", "嗯", "，", "…", "的话", "啊"]) + text[cut:]
    if rng.random() < 0.04 and len(text) > 4:
        text = text[: rng.randint(1, 3)] + text
    return text + rng.choice(["", "", "。", "。", "！", "?"])


def en(rng: random.Random, text: str) -> str:
    """An English utterance as it is recognised."""
    if rng.random() < 0.35:
        return text
    words = text.split(" ")
    rate = rng.choice([0, 0, 0.1, 0.2])
    out = []
    for word in words:
        core = word.strip(",.?!").lower()
        if core in HEARD_EN and rng.random() < rate:
            word = word.lower().replace(core, rng.choice(HEARD_EN[core]))
        elif core in DROPPED_EN and rng.random() < rate * 0.4:
            continue
        elif len(core) > 3 and rng.random() < rate * 0.12:
            at = rng.randrange(len(word))
            word = word[:at] + rng.choice(["", word[at] * 2, rng.choice("aeiounrslt")]) + word[at + 1 :]
        out.append(word)
    text = " ".join(out) or text
    if rng.random() < 0.4:
        text = text.replace(",", rng.choice(["", "", "."]))
    if rng.random() < 0.15:
        text = rng.choice(FILLERS_EN) + text
    if rng.random() < 0.06 and len(out) > 3:
        cut = rng.randint(1, len(out) - 1)
        text = " ".join([*out[:cut], rng.choice(["uh", "um", "like", "you know", "uhm"]), *out[cut:]])
    if rng.random() < 0.5:
        text = text[:1].upper() + text[1:]
    return text + rng.choice(["", "", ".", ".", "?"])
