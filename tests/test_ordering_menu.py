import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from demos.ordering import menu as menu_module
from demos.ordering.menu import MenuError, default_menu, load_menu, parse_menu

FILE = Path(menu_module.__file__).with_name("menu.yaml")


@pytest.fixture
def data() -> dict[str, Any]:
    return yaml.safe_load(FILE.read_text(encoding="utf-8"))


def test_shipped_menu_says_what_its_file_says(data: dict[str, Any]) -> None:
    menu = default_menu()
    assert len(menu.drinks) == len(data["drinks"]) == 22
    assert menu.drinks["mango_sago"].choices["ice"] == ("regular_ice", "less_ice", "light_ice", "no_ice")
    assert menu.drinks["latte"].choices["sugar"][0] == "no_sugar"
    assert menu.options["size"]["small"].price == -2
    assert menu.drinks["pearl_milk_tea"].aliases[0] == "珍奶"


def test_json_has_the_shape_of_the_file(data: dict[str, Any]) -> None:
    assert default_menu().to_json() == data


def test_sold_out_is_of_one_menu_alone() -> None:
    menu = default_menu().with_sold_out("cocoa", "pudding")
    assert menu.drinks["cocoa"].sold_out
    assert menu.toppings["pudding"].sold_out
    assert not default_menu().drinks["cocoa"].sold_out
    assert parse_menu(menu.to_json()) == menu
    assert not menu.with_sold_out().drinks["cocoa"].sold_out
    with pytest.raises(KeyError, match="fries"):
        menu.with_sold_out("fries")


def test_copies_share_the_menu() -> None:
    assert copy.deepcopy(default_menu()) is default_menu()


def test_vocabulary_names_everything_in_each_language() -> None:
    words = default_menu().vocabulary()
    assert "杨枝甘露" in words["zh"]
    assert "少冰" in words["zh"]
    assert "taro balls" in words["en"]


def _without(key: str) -> Any:
    return lambda data: data.pop(key)


def _with(path: str, value: Any) -> Any:
    def edit(data: Any) -> None:
        *steps, last = [int(step) if step.isdigit() else step for step in path.split(".")]
        for step in steps:
            data = data[step]
        data[last] = value

    return edit


@pytest.mark.parametrize(
    ("edit", "told"),
    [
        (_without("drinks"), "menu: expected keys .*drinks.*, got none for drinks"),
        (_with("currncy", "CNY"), "got unknown key 'currncy'"),
        (_with("currency", 3), "currency: expected text, got 3"),
        (_with("options.milk", []), "options: .*got unknown key 'milk'"),
        (_with("options.ice", []), "options.ice: expected a list of at least one entry"),
        (_with("options.size.0.price", "3"), r"options.size\[0\].price: expected a whole number, got '3'"),
        (_with("toppings.1.prize", 3), r"toppings\[1\]: .*got unknown key 'prize'"),
        (_with("toppings.0.price", -1), "expected 0 or more, got -1"),
        (_with("toppings.0.price", True), "expected a whole number, got True"),
        (_with("toppings.0.sold_out", "yes"), "expected true or false, got 'yes'"),
        (_with("toppings.1.id", "pearls"), "each id once, got 'pearls' more than once"),
        (_with("toppings.1.id", "latte"), "different ids, got 'latte' as both"),
        (_with("drinks.0.ice", ["warm"]), r"drinks\[0\].ice: expected some of regular_ice, .*, got warm"),
        (_with("drinks.0.ice", []), "got none"),
        (_with("drinks.0.aliases", "boba"), "expected a list of texts, got 'boba'"),
        (_with("drinks.0", "latte"), r"drinks\[0\]: expected keys id, zh, en, price, got 'latte'"),
    ],
)
def test_what_is_not_a_menu_is_refused(data: dict[str, Any], edit: Any, told: str) -> None:
    edit(data)
    with pytest.raises(MenuError, match=told):
        parse_menu(data)


def test_what_is_not_yaml_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "menu.yaml"
    path.write_text("drinks: [")
    with pytest.raises(MenuError, match=r"menu\.yaml: expected YAML"):
        load_menu(path)
