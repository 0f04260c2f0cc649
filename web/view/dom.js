/** The few DOM helpers that the views share. */

/** `h("li", {class: "line", "aria-label": "…"}, "text", child)`; null and false attributes and children are left out. */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === false || value === undefined) continue;
    element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export function byId(id) {
  const element = document.getElementById(id);
  if (!element) throw new Error(`no element #${id} in the page`);
  return element;
}

/** Writes only what differs, so that screen readers and selections are left alone. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function show(element, shown) {
  if (element.hidden === shown) element.hidden = !shown;
}

/** Calls `update` with the chosen parts only when one of them is another object than last time. */
export function whenChanged(choose, update) {
  let last = [];
  return (context) => {
    const parts = choose(context);
    if (parts.length === last.length && parts.every((part, index) => Object.is(part, last[index]))) return;
    last = parts;
    update(context);
  };
}
