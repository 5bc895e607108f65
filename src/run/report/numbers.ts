/** Formats numbers for reports, on a terminal and on a page alike. */
import type { Speed } from '../metrics.js';
import { showEstimate, type Estimate } from '../../core/estimate.js';
import type { HeldOutScale } from './read.js';

/** What stands for a held-out mean, NaN, where no answer got a score. */
export const UNSCORED = '– (unscored)';

/** A held-out mean with its error, or that it has no score. */
export function showHeldOut(estimate: Estimate): string {
  return Number.isNaN(estimate.mean) ? UNSCORED : showEstimate(estimate);
}

/** With its sign; zero gets `+`, and NaN, where there is nothing to subtract, a dash. */
export function signed(value: number, digits = 3): string {
  if (Number.isNaN(value)) return '–';
  return `${value >= 0 ? '+' : ''}${value.toFixed(digits)}`;
}

/** A difference with its error: `+0.700 ± 0.200`. */
export function signedEstimate({ mean, stderr }: Estimate): string {
  return `${mean >= 0 ? '+' : ''}${showEstimate({ mean, stderr })}`;
}

/** `2,580 tokens/s` */
export function showSpeed({ unit, value }: Speed): string {
  return `${Math.round(value).toLocaleString('en-US')} ${unit}`;
}

/** Below this, four decimals leave a loss too few digits. */
const SMALL_LOSS = 0.001;

/** A loss: four decimals, or three significant digits if it is small, as errors of pictures are. */
export function showLoss(value: number): string {
  const size = Math.abs(value);
  return size > 0 && size < SMALL_LOSS ? value.toExponential(2) : value.toFixed(4);
}

/** A difference of losses. */
export function signedLoss(value: number): string {
  return `${value >= 0 ? '+' : ''}${showLoss(value)}`;
}

/** What a held-out number means: `viescore, 0 to 10`, `loss, lower is better`. */
export function showScale({ label, most }: HeldOutScale): string {
  return most === null ? `${label}, lower is better` : `${label}, 0 to ${most}`;
}
