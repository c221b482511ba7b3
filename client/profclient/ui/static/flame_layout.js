// @ts-check
// Where each path stands in a flame graph; the same rules as `profctl flame` (profclient/cli/flame/layout.py).

/** @typedef {{depth: number, left: number, width: number, above: number, node: any}} Box
 * `left`, `width`: ns of the whole graph; `above`: the place of its caller in the list, -1 for none */

/** @param {any[]} nodes of `merged_tree`, each before those below it @param {string} by "time" or "device"
 * @returns {Box[]} paths without time have none */
export function boxes(nodes, by) {
  const above = callers(nodes);
  const widths = by === "device" ? deviceTimes(nodes, above) : nodes.map(threadTime);
  for (let place = nodes.length - 1; place >= 0; place--) {
    if (above[place] >= 0) widths[above[place]] += widths[place];
  }
  return laidOut(nodes, widths, above);
}

/** As wide as is said. @param {any[]} nodes each before those below it @param {number[]} widths
 * @param {number[]} [above] of `callers` @returns {Box[]} paths without width have none */
export function laidOut(nodes, widths, above = callers(nodes)) {
  const free = new Map([[-1, 0]]); // caller -> where its next callee begins
  const drawn = new Map([[-1, -1]]);
  /** @type {Box[]} */
  const found = [];
  nodes.forEach((node, place) => {
    const left = free.get(above[place]) ?? 0;
    free.set(place, left);
    free.set(above[place], left + widths[place]);
    if (widths[place] <= 0) return;
    drawn.set(place, found.length);
    found.push({ depth: node.depth, left, width: widths[place], above: drawn.get(above[place]) ?? -1, node });
  });
  return found;
}

/** Ns from the left edge to the right one. @param {Box[]} found */
export const whole = (found) => found.reduce((sum, box) => sum + (box.depth === 0 ? box.width : 0), 0);

/** @param {any[]} nodes */
function callers(nodes) {
  /** @type {number[]} */
  const way = []; // from the root down to a node
  return nodes.map((node, place) => {
    way.length = node.depth;
    way.push(place);
    return way.length > 1 ? way[way.length - 2] : -1;
  });
}

/** Work on a device runs beside its launch: it takes none of the thread's time. @param {any} node */
const threadTime = (node) => (node.device_type === "CPU" ? Math.max(node.self_ns, 0) : 0);

/** @param {any[]} nodes @param {number[]} above */
function deviceTimes(nodes, above) {
  const own = nodes.map((node) => node.device_total_ns);
  nodes.forEach((node, place) => {
    if (above[place] >= 0) own[above[place]] -= node.device_total_ns;
  });
  return own.map((time) => Math.max(time, 0));
}
