/** Formats numbers for reports, on a terminal and on a page alike. */
import type { Speed } from '../metrics.js';
import type { Estimate, HeldOutScale } from './read.js';

/** An error that needs more decimals is 0 but for rounding, and is shown as such. */
const MOST_DIGITS = 8;

/** `4.020 ± 0.240`, with more digits if the error would be shown as 0; only the mean if its error is unknown. */
export function showEstimate({ mean, stderr }: Estimate, digits = 3): string {
  if (stderr === null) return mean.toFixed(digits);
  const isHidden = stderr >= 10 ** (1 - MOST_DIGITS) && Number(stderr.toFixed(digits)) === 0;
  const enough = isHidden ? Math.ceil(-Math.log10(stderr)) + 1 : digits;
  return `${mean.toFixed(enough)} ± ${stderr.toFixed(enough)}`;
}

/** With its sign; zero gets `+`. */
export function signed(value: number, digits = 3): string {
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
