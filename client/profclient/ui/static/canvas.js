// @ts-check
// Canvases as sharp as the screen: their units are pixels of the page.

/** An empty one of this size, to paint on. @param {HTMLCanvasElement} canvas @param {number} width
 * @param {number} height @returns {CanvasRenderingContext2D} */
export function inked(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  const paint = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  paint.scale(ratio, ratio);
  return paint;
}
