import pytest

from demos.ordering.menu import default_menu
from demos.ordering.sound import match

MENU = default_menu()


def names(*items: object) -> dict[str, tuple[str, ...]]:
    return {item.id: (item.zh, item.en, *item.aliases) for item in items}


DRINKS = names(*MENU.drinks.values())
TOPPINGS = names(*MENU.toppings.values())
CHOICES = names(*(choice for choices in MENU.options.values() for choice in choices.values()))


@pytest.mark.parametrize("known", [DRINKS, TOPPINGS, CHOICES])
def test_every_name_is_certainly_its_own_item(known: dict[str, tuple[str, ...]]) -> None:
    for item_id, called in known.items():
        for name in (item_id, *called):
            found = match(name, known)
            assert (found.ids, found.certain) == ((item_id,), True), name


@pytest.mark.parametrize(
    ("known", "heard", "item"),
    [
        (DRINKS, "真珠奶茶", "pearl_milk_tea"),
        (DRINKS, "珍珠奈茶", "pearl_milk_tea"),
        (DRINKS, "野果奶茶", "coconut_milk_tea"),
        (DRINKS, "补丁奶茶", "pudding_milk_tea"),
        (DRINKS, "鲜草奶茶", "grass_jelly_milk_tea"),
        (DRINKS, "鱼丸奶茶", "taro_milk_tea"),
        (DRINKS, "烏龍茶", "oolong_tea"),
        (DRINKS, "乌龙", "oolong_tea"),
        (DRINKS, "莫莉绿茶", "jasmine_green_tea"),
        (DRINKS, "白香果绿茶", "passion_fruit_green_tea"),
        (DRINKS, "羊脂甘露", "mango_sago"),
        (DRINKS, "那铁", "latte"),
        (DRINKS, "金菊柠檬", "kumquat_lemon"),
        (DRINKS, "Bubble-Tea", "pearl_milk_tea"),
        (DRINKS, "passionfruit green tea", "passion_fruit_green_tea"),
        (DRINKS, "jasmin green tea", "jasmine_green_tea"),
        (DRINKS, "matcha late", "matcha_latte"),
        (DRINKS, "americana", "americano"),
        (TOPPINGS, "野果", "coconut_jelly"),
        (TOPPINGS, "补丁", "pudding"),
        (TOPPINGS, "先草", "grass_jelly"),
        (TOPPINGS, "鱼圆", "taro_balls"),
        (TOPPINGS, "taro", "taro_balls"),
        (TOPPINGS, "red beans", "red_bean"),
        (TOPPINGS, "红豆的", "red_bean"),
        (TOPPINGS, "补丁吧", "pudding"),
        (DRINKS, "真珠奶茶的啊", "pearl_milk_tea"),
        (CHOICES, "小冰", "less_ice"),
        (CHOICES, "手冰", "less_ice"),
        (CHOICES, "取冰", "no_ice"),
        (CHOICES, "半堂", "half_sugar"),
        (CHOICES, "吴糖", "no_sugar"),
        (CHOICES, "less eyes", "less_ice"),
        (CHOICES, "热", "hot"),
    ],
)
def test_what_sounds_alike_is_found(known: dict[str, tuple[str, ...]], heard: str, item: str) -> None:
    found = match(heard, known)
    assert (found.ids, found.certain) == ((item,), True)


@pytest.mark.parametrize(
    ("known", "heard", "items"),
    [
        (DRINKS, "柠檬", ("lemon_black_tea", "kumquat_lemon")),
        (DRINKS, "咖啡", ("americano", "latte")),
        (DRINKS, "green tea", ("jasmine_green_tea", "passion_fruit_green_tea", "grapefruit_green_tea")),
        (DRINKS, "mango", ("mango_sago", "mango_smoothie")),
        (DRINKS, "红茶", ("lemon_black_tea",)),
        (DRINKS, "冰沙", ("mango_smoothie",)),
        (TOPPINGS, "鱼", ("taro_balls",)),
    ],
)
def test_what_is_not_certain_is_asked(known: dict[str, tuple[str, ...]], heard: str, items: tuple[str, ...]) -> None:
    found = match(heard, known)
    assert (found.ids, found.certain) == (items, False)


@pytest.mark.parametrize(
    ("known", "heard"),
    [
        (DRINKS, "芒果奶茶"),
        (DRINKS, "柠檬绿茶"),
        (DRINKS, "苹果绿茶"),
        (DRINKS, "mocha latte"),
        (DRINKS, "grape green tea"),
        (DRINKS, "今天天气真好"),
        (DRINKS, ""),
        (DRINKS, "。"),
        (TOPPINGS, "绿豆"),
        (TOPPINGS, "苹果"),
        (CHOICES, "四分糖"),
        (CHOICES, "十分糖"),
        (CHOICES, "fifty percent sugar"),
        (CHOICES, "less sugar"),
    ],
)
def test_what_is_not_there_is_not_made_up(known: dict[str, tuple[str, ...]], heard: str) -> None:
    """Case B14: no item without one, and no swap between two that are there."""
    assert match(heard, known).ids == ()


@pytest.mark.parametrize(
    ("known", "pairs"),
    [
        (TOPPINGS, "椰果/野果 布丁/补丁 仙草/鲜草 芋圆/鱼丸 珍珠/真珠 红豆/红斗 奶盖/奶钙 仙草/先草 布丁/不定"),
        (CHOICES, "去冰/取冰 少冰/小冰 少冰/手冰 微冰/威冰 半糖/半堂 全糖/泉糖 无糖/五糖 三分糖/山分糖"),
        (DRINKS, "乌龙茶/无龙茶 拿铁/那铁 美式/美食 四季春/四季村 可可/克可 脏脏茶/葬葬茶 抹茶拿铁/末茶拿铁"),
    ],
)
def test_confusable_pairs_have_one_id(known: dict[str, tuple[str, ...]], pairs: str) -> None:
    """Case B14, on what a recogniser writes."""
    for pair in pairs.split():
        meant, heard = (match(name, known) for name in pair.split("/"))
        assert len(meant.ids) == 1
        assert (heard.ids, heard.certain) == (meant.ids, True), pair
