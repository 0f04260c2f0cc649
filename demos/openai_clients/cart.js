/**
 * A cart that lives in the page, and the eight ordering tools on it: what a client of the protocol brings along.
 * Their names, arguments and results are those that tea-omni was trained on; see `demos/ordering/tools.py`.
 */

const OPTIONS = ["size", "ice", "sugar"];

class Refused extends Error {
  constructor(code, details = {}) {
    super(code);
    this.details = { error: code, ...details };
  }
}

export class Cart {
  #menu;
  #orders = 0;
  lines = [];

  /** @param menu as the server gives it at /v1/agent, in `info.menu` */
  constructor(menu) {
    this.#menu = menu;
  }

  view() {
    const lines = this.lines.map((line, index) => {
      const unit_price = this.#unitPrice(line);
      return { line: index + 1, ...line, unit_price, price: unit_price * line.quantity };
    });
    return { lines, total: lines.reduce((sum, { price }) => sum + price, 0), currency: this.#menu.currency };
  }

  // Each tool gives the positions of the lines that are new or differ, and what else the agent should know.

  add({ drink, quantity, toppings, ...choices }) {
    this.lines.push(this.#line(drink, quantity ?? 1, choices, toppings ?? []));
    return { changed: [this.lines.length] };
  }

  change({ line, cups, drink, quantity, add_toppings, remove_toppings, ...choices }) {
    const old = this.#at(line);
    const kept = drink && drink !== old.drink ? this.#chosen(old) : old;
    const asked = Object.fromEntries(OPTIONS.map((option) => [option, choices[option] ?? kept[option]]));
    const left = old.toppings.filter((topping) => !(remove_toppings ?? []).includes(topping));
    const toppings = [...new Set([...left, ...(add_toppings ?? [])])];
    return this.#put(line, cups, (taken) => this.#line(drink ?? old.drink, quantity ?? taken, asked, toppings));
  }

  replace({ line, cups, drink, quantity, toppings, ...choices }) {
    return this.#put(line, cups, (taken) => this.#line(drink, quantity ?? taken, choices, toppings ?? []));
  }

  remove({ line, cups }) {
    const old = this.#at(line);
    const left = old.quantity - this.#cups(old, cups);
    if (left === 0) this.lines.splice(line - 1, 1);
    else this.lines[line - 1] = { ...old, quantity: left };
    return { changed: left === 0 ? [] : [line] };
  }

  clear() {
    this.lines = [];
    return { changed: [] };
  }

  read_back() {
    return { changed: [] };
  }

  place() {
    if (this.lines.length === 0) throw new Refused("empty_cart");
    const cart = { ...this.view(), placed: true };
    this.lines = [];
    this.#orders += 1;
    return { changed: [], cart, order_number: this.#orders };
  }

  look_up({ item }) {
    if (item == null) {
      const there = this.#menu.drinks.filter(({ sold_out }) => !sold_out);
      return { changed: [], favourites: there.slice(0, 3).map(({ id }) => id) };
    }
    const found = this.#find([...this.#menu.drinks, ...this.#menu.toppings], item);
    const { id, price, sold_out = false, ice = [], sugar = [] } = found;
    return { changed: [], item: { id, price, sold_out, ice, sugar } };
  }

  #find(entries, id) {
    const found = entries.find((entry) => entry.id === id);
    if (!found) throw new Refused("no_such_item");
    return found;
  }

  #choices(drink, option) {
    return drink[option] ?? this.#menu.options[option].map(({ id }) => id);
  }

  #line(drinkId, quantity, asked, toppings) {
    if (!(quantity >= 1 && quantity <= 30)) throw new Refused("quantity_unclear");
    const drink = this.#find(this.#menu.drinks, drinkId);
    for (const item of [drink, ...toppings.map((id) => this.#find(this.#menu.toppings, id))]) {
      if (item.sold_out) throw new Refused("sold_out", { item: item.id });
    }
    const line = { drink: drinkId, quantity };
    for (const option of OPTIONS) {
      const allowed = this.#choices(drink, option);
      line[option] = asked[option] ?? allowed[0];
      if (!allowed.includes(line[option])) throw new Refused("bad_option", { field: option, allowed });
    }
    return { ...line, toppings };
  }

  /** What was chosen on purpose: another drink has defaults of its own. */
  #chosen(line) {
    const drink = this.#find(this.#menu.drinks, line.drink);
    return Object.fromEntries(
      OPTIONS.filter((option) => line[option] !== this.#choices(drink, option)[0]).map((option) => [option, line[option]]),
    );
  }

  #put(line, cups, make) {
    const old = this.#at(line);
    const taken = this.#cups(old, cups);
    const made = make(taken);
    if (taken === old.quantity) {
      this.lines[line - 1] = made;
      return { changed: [line] };
    }
    this.lines[line - 1] = { ...old, quantity: old.quantity - taken };
    this.lines.push(made);
    return { changed: [line, this.lines.length] };
  }

  #at(line) {
    if (!this.lines[line - 1]) throw new Refused("no_such_line");
    return this.lines[line - 1];
  }

  #cups(line, cups) {
    if (cups != null && !(cups >= 1 && cups <= line.quantity)) throw new Refused("quantity_unclear");
    return cups ?? line.quantity;
  }

  #unitPrice(line) {
    const price = (entries, id) => this.#find(entries, id).price;
    const toppings = line.toppings.reduce((sum, id) => sum + price(this.#menu.toppings, id), 0);
    return price(this.#menu.drinks, line.drink) + price(this.#menu.options.size, line.size) + toppings;
  }
}

const id = { type: ["string", "null"] };
const ids = { type: "array", items: { type: "string" } };
const number = { type: ["integer", "null"] };
const drink = { type: "string" };
const line = { type: "integer" };
const choices = { size: id, ice: id, sugar: id };

/** Name: what it does, its arguments, and those that must be given. */
const TOOLS = {
  add: ["Add cups of one drink to the cart.", { drink, quantity: number, ...choices, toppings: ids }, ["drink"]],
  change: [
    "Change a line of the cart, or so many cups of it.",
    { line, cups: number, drink: id, quantity: number, ...choices, add_toppings: ids, remove_toppings: ids },
    ["line"],
  ],
  replace: [
    "Put another drink in the place of a line.",
    { line, cups: number, drink, quantity: number, ...choices, toppings: ids },
    ["line", "drink"],
  ],
  remove: ["Take a line, or so many cups of it, out of the cart.", { line, cups: number }, ["line"]],
  clear: ["Empty the cart.", {}, []],
  read_back: ["The whole cart with its prices.", {}, []],
  place: ["Place the order.", {}, []],
  look_up: ["Price and choices of a drink or topping.", { item: id }, []],
};

/**
 * The tools on that cart, each as the arguments of the client's `tool()`.
 *
 * @param {Cart} cart
 * @param {(name: string, args: object, result: object) => void} told of each call
 */
export function toolsOn(cart, told) {
  return Object.entries(TOOLS).map(([name, [description, properties, required]]) => ({
    name,
    description,
    parameters: { type: "object", properties, required, additionalProperties: false },
    strict: false,
    execute(args) {
      let result;
      try {
        result = { ok: true, error: null, cart: cart.view(), ...cart[name](args) };
        if (name !== "place") result.cart = cart.view();
      } catch (error) {
        if (!(error instanceof Refused)) throw error;
        result = { ok: false, cart: cart.view(), changed: [], ...error.details };
      }
      told(name, args, result);
      return JSON.stringify(result);
    },
  }));
}
