/** The menu with its prices, and how many cups of each drink are in the order. */
import { formatPrice } from "../i18n.js";
import { byId, h, show, whenChanged } from "./dom.js";

export function capitalised(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

function surcharge(language, price, currency) {
  if (!price) return "";
  const sign = price > 0 ? "+" : "−";
  return ` ${sign}${formatPrice(language, Math.abs(price), currency)}`;
}

function cupsOf(cart) {
  const cups = new Map();
  for (const line of cart.lines) cups.set(line.drink, (cups.get(line.drink) ?? 0) + line.quantity);
  return cups;
}

function drinkRow({ t, language }, drink, currency, cups) {
  return h(
    "li",
    { class: "drink", "data-in-cart": cups > 0 },
    h("span", { class: "drink-name" }, capitalised(drink[language])),
    cups > 0 ? h("span", { class: "drink-cups", "aria-label": t("in_cart", { n: cups }) }, `×${cups}`) : null,
    h("span", { class: "leader", "aria-hidden": "true" }),
    h("span", { class: "price" }, formatPrice(language, drink.price, currency)),
  );
}

function choices({ t, language }, key, entries, currency) {
  const list = entries.map((entry) =>
    h("li", {}, entry[language], h("span", { class: "price" }, surcharge(language, entry.price, currency))),
  );
  return h("div", { class: "choice" }, h("h3", {}, t(key)), h("ul", { role: "list" }, ...list));
}

export function menuView() {
  const section = byId("menu");
  const body = byId("menu-body");
  return whenChanged(
    ({ state, language }) => [state.agent, state.cart, language],
    (context) => {
      const menu = context.state.agent?.info?.menu;
      show(section, Boolean(menu));
      if (!menu) return;
      const cups = cupsOf(context.state.cart);
      const drinks = menu.drinks.map((drink) => drinkRow(context, drink, menu.currency, cups.get(drink.id) ?? 0));
      body.replaceChildren(
        h("ul", { class: "drinks", role: "list" }, ...drinks),
        h("p", { class: "menu-note" }, context.t("menu_note")),
        choices(context, "toppings", menu.toppings, menu.currency),
        ...Object.entries(menu.options).map(([key, entries]) => choices(context, key, entries, menu.currency)),
      );
    },
  );
}
