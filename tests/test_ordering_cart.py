import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from demos.ordering.cart import Cart, Refused, final_cart, same
from demos.ordering.menu import default_menu

MENU = default_menu()


def lines_of(cart: Cart) -> list[tuple[str, int]]:
    return [(line.drink, line.quantity) for line in cart.lines]


def refusal(operation: Any, *args: Any, **named: Any) -> Refused:
    with pytest.raises(Refused) as caught:
        operation(*args, **named)
    return caught.value


def test_add_takes_the_drinks_defaults() -> None:
    cart = Cart()
    assert cart.add("pearl_milk_tea", ice="less_ice") == [1]
    assert cart.add("latte") == [2]
    assert cart.view() == {
        "lines": [
            {
                "line": 1,
                "drink": "pearl_milk_tea",
                "quantity": 1,
                "size": "medium",
                "ice": "less_ice",
                "sugar": "full_sugar",
                "toppings": [],
                "unit_price": 18,
                "price": 18,
            },
            {
                "line": 2,
                "drink": "latte",
                "quantity": 1,
                "size": "medium",
                "ice": "regular_ice",
                "sugar": "no_sugar",
                "toppings": [],
                "unit_price": 20,
                "price": 20,
            },
        ],
        "total": 38,
        "currency": "CNY",
    }


def test_price_is_drink_size_and_toppings_times_cups() -> None:
    cart = Cart()
    cart.add("milk_tea", 3, size="large", toppings=["milk_foam", "pearls"])
    assert cart.view()["total"] == 3 * (15 + 3 + 5 + 3)
    cart.change(1, size="small", remove_toppings=["milk_foam"])
    assert cart.view()["total"] == 3 * (15 - 2 + 3)


def test_equal_drinks_have_lines_of_their_own() -> None:
    cart = Cart()
    cart.add("milk_tea")
    assert cart.add("milk_tea") == [2]


def test_heard_names_are_taken() -> None:
    cart = Cart()
    cart.add("野果奶茶", ice="小冰", sugar="半堂", toppings=["鱼圆", "珍珠", "珍珠"])
    line = cart.lines[0]
    assert (line.drink, line.ice, line.sugar) == ("coconut_milk_tea", "less_ice", "half_sugar")
    assert line.toppings == ("pearls", "taro_balls")


@pytest.mark.parametrize(
    ("named", "code", "details"),
    [
        ({"drink": "薯条"}, "no_such_item", {}),
        ({"drink": "latte", "toppings": ["oat milk"]}, "no_such_item", {}),
        ({"drink": "咖啡"}, "ambiguous", {"candidates": ["americano", "latte"]}),
        ({"drink": "红茶"}, "ambiguous", {"candidates": ["lemon_black_tea"]}),
        ({"drink": "taro_milk_tea"}, "sold_out", {"item": "taro_milk_tea"}),
        ({"drink": "latte", "toppings": ["pudding"]}, "sold_out", {"item": "pudding"}),
        ({"drink": "latte", "quantity": 0}, "quantity_unclear", {}),
        ({"drink": "latte", "quantity": 31}, "quantity_unclear", {}),
        ({"drink": "cocoa", "ice": "less_ice"}, "bad_option", {"field": "ice", "allowed": ["hot"]}),
        ({"drink": "latte", "size": "huge"}, "bad_option", {"field": "size", "allowed": ["medium", "large", "small"]}),
    ],
)
def test_a_refused_add_says_why_and_changes_nothing(named: Any, code: str, details: Any) -> None:
    cart = Cart(MENU.with_sold_out("taro_milk_tea", "pudding"))
    cart.add("milk_tea")
    before = cart.view()
    refused = refusal(cart.add, **named)
    assert (refused.code, refused.details) == (code, details)
    assert cart.view() == before


def test_change_keeps_what_is_not_asked() -> None:
    cart = Cart()
    cart.add("milk_tea", 2, ice="no_ice", toppings=["pearls"])
    assert cart.change(1, size="large", remove_toppings=["pearls"], add_toppings=["coconut_jelly"]) == [1]
    line = cart.lines[0]
    assert (line.quantity, line.size, line.ice, line.toppings) == (2, "large", "no_ice", ("coconut_jelly",))
    assert refusal(cart.change, 2, size="large").code == "no_such_line"
    taken_out = refusal(cart.change, 1, size="small", remove_toppings=["pearls"])
    assert (taken_out.code, taken_out.details["allowed"]) == ("bad_option", ["coconut_jelly"])
    assert cart.lines[0] == line


def test_change_of_the_drink_keeps_its_choices_but_not_its_defaults() -> None:
    cart = Cart()
    cart.add("milk_tea", ice="less_ice")
    cart.change(1, drink="latte")
    assert (cart.lines[0].ice, cart.lines[0].sugar) == ("less_ice", "no_sugar")
    assert refusal(cart.change, 1, drink="mango_smoothie").details == {"field": "ice", "allowed": ["regular_ice"]}
    assert cart.lines[0].drink == "latte"


def test_change_of_some_cups_splits_them_off() -> None:
    cart = Cart()
    cart.add("oolong_tea", 3)
    cart.add("cocoa")
    assert cart.change(1, ice="hot", cups=1) == [1, 3]
    assert lines_of(cart) == [("oolong_tea", 2), ("cocoa", 1), ("oolong_tea", 1)]
    assert [line.ice for line in cart.lines] == ["regular_ice", "hot", "hot"]
    assert cart.change(1, ice="hot", cups=2) == [1]
    assert refusal(cart.change, 1, ice="no_ice", cups=3).code == "quantity_unclear"


def test_replace_is_whole_or_not_at_all() -> None:
    cart = Cart(MENU.with_sold_out("cocoa"))
    cart.add("latte", 2, ice="hot")
    cart.add("milk_tea")
    assert refusal(cart.replace, 1, "cocoa").code == "sold_out"
    assert lines_of(cart) == [("latte", 2), ("milk_tea", 1)]
    assert cart.replace(1, "oolong_tea") == [1]
    assert lines_of(cart) == [("oolong_tea", 2), ("milk_tea", 1)]
    assert cart.lines[0].ice == "regular_ice"
    assert cart.replace(1, "americano", cups=1) == [1, 3]
    assert lines_of(cart) == [("oolong_tea", 1), ("milk_tea", 1), ("americano", 1)]
    assert cart.replace(2, "latte", quantity=4) == [2]
    assert lines_of(cart)[1] == ("latte", 4)


def test_remove_and_clear() -> None:
    cart = Cart()
    cart.add("latte", 2)
    cart.add("milk_tea")
    assert cart.remove(1, cups=1) == [1]
    assert refusal(cart.remove, 1, cups=2).code == "quantity_unclear"
    assert cart.remove(1) == []
    assert lines_of(cart) == [("milk_tea", 1)]
    assert cart.clear() == cart.clear() == []
    assert cart.view()["total"] == 0


def test_an_order_is_placed_once() -> None:
    cart = Cart()
    assert refusal(cart.place, "call-1").code == "empty_cart"
    cart.add("latte", 2)
    first = cart.place("call-1")
    assert first.cart["placed"] is True
    assert first.cart["total"] == 40
    assert cart.lines == ()
    assert cart.place("call-1") is first
    cart.add("cocoa")
    second = cart.place("call-1")
    assert second.number != first.number
    assert len(cart.orders) == 2


def test_a_repeated_request_on_a_copy_gives_the_same_number() -> None:
    cart = Cart()
    cart.add("latte")
    fork = copy.deepcopy(cart)
    assert fork.place("call-1").number == cart.place("call-1").number
    assert 1 <= cart.orders[0].number <= 999


def test_a_copy_leaves_the_cart_alone() -> None:
    cart = Cart()
    cart.add("latte")
    fork = copy.deepcopy(cart)
    fork.clear()
    assert lines_of(cart) == [("latte", 1)]


def test_look_up() -> None:
    cart = Cart(MENU.with_sold_out("pudding", "coconut_milk_tea"))
    assert cart.look_up("布丁") == {"id": "pudding", "price": 4, "sold_out": True, "ice": [], "sugar": []}
    assert cart.look_up("热可可")["ice"] == ["hot"]
    assert refusal(cart.look_up, "绿茶").code == "ambiguous"
    assert cart.favourites() == ["pearl_milk_tea", "pudding_milk_tea", "red_bean_milk_tea"]


def keys(drink: str, quantity: int = 1, toppings: tuple[str, ...] = ()) -> dict[str, Any]:
    rest = {"size": "medium", "ice": "regular_ice", "sugar": "full_sugar", "toppings": list(toppings)}
    return {"drink": drink, "quantity": quantity, **rest}


def test_same_cups_are_the_same_cart() -> None:
    two = [keys("milk_tea", 2), keys("cocoa")]
    assert same(two, [keys("cocoa"), keys("milk_tea"), keys("milk_tea")])
    assert same([keys("milk_tea", 1, ("pearls", "pudding"))], [keys("milk_tea", 1, ("pudding", "pearls"))])
    assert not same(two, [keys("milk_tea", 2)])
    assert not same(two, [keys("milk_tea"), keys("cocoa")])
    assert not same([keys("milk_tea", 1, ("pearls",))], [keys("milk_tea")])
    with pytest.raises(KeyError):
        same(two, [{"drink": "milk_tea", "quantity": 2}])


def test_final_cart_is_the_open_one_or_the_last_order() -> None:
    cart = Cart()
    assert final_cart(cart) == []
    cart.add("milk_tea")
    cart.place("call-1")
    assert final_cart(cart) == [keys("milk_tea")]
    cart.add("oolong_tea")
    assert final_cart(cart) == [keys("oolong_tea")]


positions = st.integers(-1, 5)
quantities = st.one_of(st.none(), st.integers(-1, 4), st.sampled_from([30, 31]))
drinks = st.sampled_from([*MENU.drinks, "绿茶", "fries"])
topping_lists = st.lists(st.sampled_from([*MENU.toppings, "oat milk"]), max_size=3)
choices = {
    field: st.one_of(st.none(), st.sampled_from([*MENU.options[field], "half ice"]))
    for field in ("size", "ice", "sugar")
}
calls = st.one_of(
    st.tuples(
        st.just("add"),
        st.fixed_dictionaries({"drink": drinks, "quantity": st.integers(0, 31), "toppings": topping_lists, **choices}),
    ),
    st.tuples(
        st.just("change"),
        st.fixed_dictionaries(
            {
                "line": positions,
                "drink": st.one_of(st.none(), drinks),
                "quantity": quantities,
                "cups": quantities,
                "add_toppings": topping_lists,
                "remove_toppings": topping_lists,
                **choices,
            }
        ),
    ),
    st.tuples(
        st.just("replace"),
        st.fixed_dictionaries(
            {
                "line": positions,
                "drink": drinks,
                "quantity": quantities,
                "cups": quantities,
                "toppings": topping_lists,
                **choices,
            }
        ),
    ),
    st.tuples(st.just("remove"), st.fixed_dictionaries({"line": positions, "cups": quantities})),
    st.tuples(st.just("clear"), st.just({})),
    st.tuples(st.just("place"), st.just({"call_id": "call-1"})),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(calls, max_size=14))
def test_any_sequence_of_calls_keeps_the_cart_right(sequence: list[tuple[str, dict[str, Any]]]) -> None:
    cart = Cart(MENU.with_sold_out("cocoa", "pudding"))
    for name, arguments in sequence:
        before, lines, orders = cart.view(), cart.lines, cart.orders
        try:
            getattr(cart, name)(**arguments)
        except Refused:
            assert cart.view() == before
            assert cart.orders == orders
            continue
        view = cart.view()
        assert view["total"] == sum(line["price"] for line in view["lines"])
        assert [line["line"] for line in view["lines"]] == list(range(1, len(view["lines"]) + 1))
        for line in view["lines"]:
            drink = MENU.drinks[line["drink"]]
            toppings = sum(MENU.toppings[topping].price for topping in line["toppings"])
            assert line["unit_price"] == drink.price + MENU.options["size"][line["size"]].price + toppings
            assert line["price"] == line["unit_price"] * line["quantity"]
            assert 1 <= line["quantity"] <= 30
            assert all(line[field] in drink.choices[field] for field in ("size", "ice", "sugar"))
        if name == "replace":
            old = lines[arguments["line"] - 1]
            taken = arguments["cups"] or old.quantity
            wanted = taken if arguments["quantity"] is None else arguments["quantity"]
            cups = sum(line.quantity for line in lines) - taken + wanted
            assert sum(line.quantity for line in cart.lines) == cups
        if name == "place":
            assert cart.lines == ()
            assert len(cart.orders) == len(orders) + bool(lines)
