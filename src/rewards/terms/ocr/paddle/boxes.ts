/**
 * From a detector's probability map to boxes (Liao et al., "Real-time Scene Text Detection with Differentiable Binarization", 2020). Boxes
 * are upright: slanted text is read as far as its upright box allows.
 */

/** In pixels of the map or image: left and top inclusive, right and bottom exclusive. */
export interface Box {
  readonly left: number;
  readonly top: number;
  readonly right: number;
  readonly bottom: number;
}

export interface ProbabilityMap {
  readonly width: number;
  readonly height: number;
  /** Probability that a pixel is in the kernel of a text region. Axes [height, width]. */
  readonly data: Float32Array;
}

/** PaddleOCR's own values. */
export const boxRules = {
  /** Pixels above this belong to a region. */
  threshold: 0.3,
  /** A region whose mean probability is below this is dropped. */
  boxThreshold: 0.6,
  /** Regions are shrunk in training. Each side moves out by `area * unclip / perimeter`. */
  unclip: 1.5,
  /** Shorter sides than this are noise, in pixels. */
  minSide: 3,
  maxBoxes: 1000,
} as const;

interface Region extends Box {
  readonly meanProbability: number;
}

/** Regions of 8-connected pixels above the threshold, in the order of their first pixel. */
function regions({ width, height, data }: ProbabilityMap): readonly Region[] {
  const seen = new Uint8Array(width * height);
  const found: Region[] = [];
  const stack: number[] = [];
  for (let start = 0; start < data.length && found.length < boxRules.maxBoxes; start++) {
    if (seen[start] === 1 || !(data[start] > boxRules.threshold)) continue;
    let [left, top, right, bottom, sum, count] = [width, height, 0, 0, 0, 0];
    seen[start] = 1;
    stack.push(start);
    for (let at = stack.pop(); at !== undefined; at = stack.pop()) {
      const [x, y] = [at % width, Math.floor(at / width)];
      [left, top, right, bottom] = [
        Math.min(left, x),
        Math.min(top, y),
        Math.max(right, x + 1),
        Math.max(bottom, y + 1),
      ];
      sum += data[at];
      count++;
      for (let v = Math.max(0, y - 1); v <= Math.min(height - 1, y + 1); v++) {
        for (let u = Math.max(0, x - 1); u <= Math.min(width - 1, x + 1); u++) {
          const next = v * width + u;
          if (seen[next] === 1 || !(data[next] > boxRules.threshold)) continue;
          seen[next] = 1;
          stack.push(next);
        }
      }
    }
    found.push({ left, top, right, bottom, meanProbability: sum / count });
  }
  return found;
}

/** A shrunk region's box at its full size, inside `width` x `height`. */
export function unclip(box: Box, width: number, height: number): Box {
  const [w, h] = [box.right - box.left, box.bottom - box.top];
  const distance = (w * h * boxRules.unclip) / (2 * (w + h));
  return {
    left: Math.max(0, box.left - distance),
    top: Math.max(0, box.top - distance),
    right: Math.min(width, box.right + distance),
    bottom: Math.min(height, box.bottom + distance),
  };
}

/** The boxes of text on a map, in reading order. */
export function findBoxes(map: ProbabilityMap): readonly Box[] {
  const kept = regions(map).filter(
    ({ left, top, right, bottom, meanProbability }) =>
      Math.min(right - left, bottom - top) >= boxRules.minSide && meanProbability >= boxRules.boxThreshold,
  );
  return inReadingOrder(kept.map((region) => unclip(region, map.width, map.height)));
}

/** Row by row from the top, each from the left. A box belongs to a row if its middle is inside the row's first box. */
export function inReadingOrder(boxes: readonly Box[]): readonly Box[] {
  const rows: Box[][] = [];
  for (const box of [...boxes].sort((a, b) => a.top - b.top || a.left - b.left)) {
    const middle = (box.top + box.bottom) / 2;
    const row = rows.find(([first]) => middle > first.top && middle < first.bottom);
    if (row === undefined) rows.push([box]);
    else row.push(box);
  }
  return rows.flatMap((row) => row.sort((a, b) => a.left - b.left));
}

/** A box of the map in whole pixels of the image, at least one pixel wide and high. */
export function scaleBox(box: Box, map: Size, image: Size): Box {
  const [x, y] = [image.width / map.width, image.height / map.height];
  const left = Math.min(image.width - 1, Math.max(0, Math.floor(box.left * x)));
  const top = Math.min(image.height - 1, Math.max(0, Math.floor(box.top * y)));
  return {
    left,
    top,
    right: Math.max(left + 1, Math.min(image.width, Math.ceil(box.right * x))),
    bottom: Math.max(top + 1, Math.min(image.height, Math.ceil(box.bottom * y))),
  };
}

export interface Size {
  readonly width: number;
  readonly height: number;
}
