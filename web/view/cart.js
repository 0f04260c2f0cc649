/** The order: quantities, drinks, options and prices, with what just changed marked. */
import { formatPrice } from "../i18n.js";
import { byId, h, setText, show, whenChanged } from "./dom.js";
import { capitalised } from "./menu.js";

/** Finds the menu's words for an id; an id the menu does not have is shown as it is. */
function nameOf(entries, id, language) {
  return entries?.find((entry) => entry.id === id)?.[language] ?? id;
}

function defaultOf(menu, drinkId, option) {
  const own = menu?.drinks.find((drink) => drink.id === drinkId)?.[option];
  return own?.[0] ?? menu?.options[option]?.[0]?.id;
}

function optionsOf(menu, line, language) {
  const options = ["size", "ice", "sugar"].map((option) =>
    h(
      "li",
      { "data-chosen": line[option] !== defaultOf(menu, line.drink, option) },
      nameOf(menu?.options[option], line[option], language),
    ),
  );
  const toppings = (line.toppings ?? []).map((id) =>
    h("li", { "data-chosen": true }, `+ ${nameOf(menu?.toppings, id, language)}`),
  );
  return h("ul", { class: "line-options", role: "list" }, ...options, ...toppings);
}

function cartLine({ language }, menu, line, currency, changed) {
  return h(
    "li",
    { class: "line", "data-changed": changed },
    h("span", { class: "line-quantity" }, `${line.quantity} ×`),
    h(
      "div",
      { class: "line-what" },
      h("span", { class: "line-name" }, capitalised(nameOf(menu?.drinks, line.drink, language))),
      optionsOf(menu, line, language),
    ),
    h("span", { class: "price" }, formatPrice(language, line.price, currency)),
  );
}

/** Scrolls the list, and nothing around it, until the line is in sight. */
function reveal(list, line) {
  if (!line) return;
  const below = line.getBoundingClientRect().bottom - list.getBoundingClientRect().bottom;
  const above = list.getBoundingClientRect().top - line.getBoundingClientRect().top;
  if (below > 0) list.scrollTop += below;
  else if (above > 0) list.scrollTop -= above;
}

export function cartView() {
  const section = byId("cart");
  const list = byId("cart-lines");
  const receipt = byId("cart-receipt");
  return whenChanged(
    ({ state, language }) => [state.agent, state.cart, state.receipt, state.cartVersion, state.call.phase, language],
    (context) => {
      const { state, language, t } = context;
      const menu = state.agent?.info?.menu;
      const placed = state.receipt !== null && state.cart.lines.length === 0;
      const cart = placed ? state.receipt.cart : state.cart;
      show(section, Boolean(menu) && (state.call.phase === "live" || cart.lines.length > 0));
      const lines = cart.lines.map((line) =>
        cartLine(context, menu, line, cart.currency, state.changedLines.includes(line.line)),
      );
      list.replaceChildren(...lines);
      reveal(list, lines.findLast((line) => line.dataset.changed !== undefined));
      const cups = cart.lines.reduce((sum, line) => sum + line.quantity, 0);
      setText(byId("cart-count"), cups > 0 ? String(cups) : "");
      show(byId("cart-empty"), cups === 0);
      show(byId("cart-total"), cups > 0);
      setText(byId("cart-sum"), formatPrice(language, cart.total, cart.currency));
      show(receipt, placed);
      const number = placed && state.receipt.number !== null ? `${t("order_number")} ${state.receipt.number}` : "";
      setText(receipt, placed ? [t("order_placed"), number].filter(Boolean).join(" · ") : "");
    },
  );
}
