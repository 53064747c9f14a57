// Small helpers that build and change the page. Data only ever becomes text or attributes, never
// markup, so a hostile process name stays a name; and only what differs is written.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) setAttribute(node, name, value);
  node.append(...children);
  return node;
}

export function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

export function setAttribute(node, name, value) {
  if (value === null || value === undefined || value === false) {
    if (node.hasAttribute(name)) node.removeAttribute(name);
  } else if (node.getAttribute(name) !== String(value)) {
    node.setAttribute(name, String(value));
  }
}

const texts = new WeakMap();

export function setText(node, value) {
  const wanted = String(value);
  if (texts.get(node) === wanted) return;
  texts.set(node, wanted);
  node.textContent = wanted;
}

const variables = new WeakMap();

// A CSS variable of one element; through the CSSOM, which the content security policy allows.
export function setVariable(node, name, value) {
  const known = variables.get(node) ?? {};
  if (known[name] === value) return;
  known[name] = value;
  variables.set(node, known);
  node.style.setProperty(name, value);
}

// Make the children of `parent` exactly `nodes`, moving as few as possible.
export function arrange(parent, nodes) {
  const wanted = new Set(nodes);
  for (const child of [...parent.children]) if (!wanted.has(child)) child.remove();
  nodes.forEach((node, index) => {
    if (parent.children[index] !== node) parent.insertBefore(node, parent.children[index] ?? null);
  });
}
