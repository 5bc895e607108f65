/** A small curve without axes, to be read beside a number. Pure. */
import type { WireHeldOut } from '../wire.js';
import { showNumber } from './format.js';

/** In pixels. */
export const SPARKLINE = { width: 72, height: 20, margin: 2 } as const;

type Points = WireHeldOut['series'];

/** Where the points lie in the picture, from its upper left corner; a flat line runs through the middle. */
export function placesOf(series: Points): readonly (readonly [x: number, y: number])[] {
  const { width, height, margin } = SPARKLINE;
  const scale = (values: readonly number[], from: number, to: number): ((value: number) => number) => {
    const [least, most] = [Math.min(...values), Math.max(...values)];
    return (value) => (most === least ? (from + to) / 2 : from + ((value - least) / (most - least)) * (to - from));
  };
  const x = scale(
    series.map(([iteration]) => iteration),
    margin,
    width - margin,
  );
  const y = scale(
    series.map(([, value]) => value),
    height - margin,
    margin,
  );
  return series.map(([iteration, value]) => [round(x(iteration)), round(y(value))]);
}

/** What the curve shows, for those who do not see it. */
export function sparklineInWords(series: Points): string {
  const [first, last] = [series.at(0), series.at(-1)];
  if (first === undefined || last === undefined) return '';
  const values = series.map(([, value]) => value);
  const at = ([iteration, value]: Points[number]): string => `${showNumber(value)} at iteration ${iteration}`;
  return `from ${at(first)} to ${at(last)}, between ${showNumber(Math.min(...values))} and ${showNumber(Math.max(...values))}`;
}

function round(pixels: number): number {
  return Math.round(pixels * 10) / 10;
}
