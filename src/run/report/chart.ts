/** Draws line charts as SVG without a browser: panels on top of each other, with a common axis of iterations. */
import { condense, finiteCurve } from '../../core/curves.js';
import { escapeMarkup, FONT, INK, MUTED } from './svg.js';

export interface Point {
  readonly x: number;
  readonly y: number;
  /** Half the length of the error bar. 0 for none. */
  readonly error: number;
}

export interface Series {
  readonly label: string;
  readonly color: string;
  readonly points: readonly Point[];
  readonly style: keyof typeof LINE_STYLES;
}

export interface Panel {
  /** Title of its vertical axis, with the unit. */
  readonly label: string;
  readonly height: number;
  readonly series: readonly Series[];
  /** Whether the vertical axis is logarithmic. All finite values must then be above 0 and have no errors. */
  readonly logarithmic?: boolean;
}

const WIDTH = 960;
const MARGIN = { left: 78, right: 30, top: 84, bottom: 62 };
const RIGHT = WIDTH - MARGIN.right;
const PANEL_GAP = 46;
/** Longer series are averaged to this many points, because there are no more pixels. */
const MAX_POINTS = RIGHT - MARGIN.left;
/** Approximate distance between the ticks of an axis, in pixels. */
const TICK_GAP = { x: 107, y: 50 };

/**
 * Line styles. `faint` is a thin pale line. `circles` and `squares` are marks on a line with error bars. `sign`
 * represents the style in the legend.
 */
const LINE_STYLES = {
  line: { width: 2.4, opacity: 1, sign: '──' },
  faint: { width: 1.2, opacity: 0.4, sign: '──' },
  circles: { width: 1.6, opacity: 0.75, sign: '○' },
  squares: { width: 1.6, opacity: 0.75, sign: '□' },
} as const;

/** An axis: its ticks, and the pixel position of a value. */
interface Axis {
  readonly ticks: readonly number[];
  readonly at: (value: number) => number;
}

/** Draws a chart. Points that are not finite are left out and interrupt their line. */
export function renderChart(title: string, subtitle: string, panels: readonly Panel[]): string {
  const tops = panels.map((_, at) =>
    panels.slice(0, at).reduce((sum, { height }) => sum + height + PANEL_GAP, MARGIN.top),
  );
  const height = tops.reduce((end, top, at) => Math.max(end, top + panels[at].height), 0) + MARGIN.bottom;
  const x = iterationAxis(panels.flatMap(({ series }) => series.flatMap(({ points }) => points.map((one) => one.x))));
  // The longest run names, with 96 characters, still fit.
  const size = Math.min(20, 1400 / Math.max(1, title.length));
  const body = [
    text(title, { x: MARGIN.left, y: 34, size, weight: 'bold' }),
    text(subtitle, { x: MARGIN.left, y: 60, color: MUTED }),
    ...panels.map((panel, at) => drawPanel(panel, tops[at], x, at === panels.length - 1)),
    text('iteration', { x: (MARGIN.left + RIGHT) / 2, y: height - 20, anchor: 'middle' }),
  ];
  const font = `font-family="${FONT}, Arial, Helvetica, sans-serif"`;
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${WIDTH}" height="${height}" viewBox="0 0 ${WIDTH} ${height}" ${font}><rect width="100%" height="100%" fill="#fff"/>${body.join('')}</svg>`;
}

function drawPanel({ label, height, series, logarithmic = false }: Panel, top: number, x: Axis, last: boolean): string {
  const bottom = top + height;
  const y = logarithmic ? powerAxis(series, top, bottom) : valueAxis(series, top, bottom);
  const marked = series.filter(isMarked);
  // Marks of the same iteration are drawn side by side, so that their error bars do not overlap.
  const shift = (one: Series): number => (isMarked(one) ? 6 * (marked.indexOf(one) - (marked.length - 1) / 2) : 0);
  return [
    ...y.ticks.map((tick) => {
      const line = `<path d="M${MARGIN.left} ${round(y.at(tick))}H${RIGHT}" stroke="${MUTED}" stroke-opacity="0.25"/>`;
      const place = { x: MARGIN.left - 12, y: y.at(tick) + 4.5, anchor: 'end', color: MUTED } as const;
      return line + text(showNumber(tick), place);
    }),
    `<path d="M${MARGIN.left} ${bottom}H${RIGHT}" stroke="${MUTED}"/>`,
    ...x.ticks.map((tick) => {
      const mark = `<path d="M${round(x.at(tick))} ${bottom}v5" stroke="${MUTED}"/>`;
      const place = { x: x.at(tick), y: bottom + 20, anchor: 'middle', color: MUTED } as const;
      return last ? mark + text(String(tick), place) : mark;
    }),
    text(label, { x: 28, y: (top + bottom) / 2, anchor: 'middle', turned: true }),
    series.length > 1 ? legend(series, top - 14) : '',
    ...series.map((one) => drawSeries(one, shift(one), x, y)),
  ].join('');
}

function drawSeries({ color, points, style }: Series, shift: number, x: Axis, y: Axis): string {
  const { width, opacity } = LINE_STYLES[style];
  const at = ({ x: iteration, y: value }: Pick<Point, 'x' | 'y'>): string =>
    `${round(x.at(iteration) + shift)} ${round(y.at(value))}`;
  let pen = 'M';
  const line = few(points).flatMap((point) => {
    const drawn = pen;
    pen = Number.isFinite(point.y) ? 'L' : 'M';
    return pen === 'M' ? [] : [`${drawn}${at(point)}`];
  });
  const parts = [
    `<path d="${line.join('')}" fill="none" stroke="${color}" stroke-width="${width}" stroke-opacity="${opacity}" stroke-linejoin="round"/>`,
  ];
  for (const point of isMarked({ style }) ? points.filter((one) => Number.isFinite(one.y)) : []) {
    const [left, middle] = [x.at(point.x) + shift, y.at(point.y)];
    if (point.error > 0 && Number.isFinite(point.error)) {
      const [low, high] = [point.y - point.error, point.y + point.error].map((value) => round(y.at(value)));
      const ends = [low, high].map((end) => `M${round(left - 4)} ${end}h8`).join('');
      parts.push(`<path d="M${round(left)} ${low}V${high}${ends}" fill="none" stroke="${color}" stroke-width="1.3"/>`);
    }
    parts.push(
      style === 'circles'
        ? `<circle cx="${round(left)}" cy="${round(middle)}" r="4" fill="#fff" stroke="${color}" stroke-width="2"/>`
        : `<rect x="${round(left - 3.75)}" y="${round(middle - 3.75)}" width="7.5" height="7.5" fill="#fff" stroke="${color}" stroke-width="2"/>`,
    );
  }
  return parts.join('');
}

/** The legend at the right end. It is one text, because only the renderer knows the widths of letters. */
function legend(series: readonly Series[], y: number): string {
  const entries = series.map(({ label, color, style }, at) => {
    const { sign, opacity, width } = LINE_STYLES[style];
    const ink = `fill="${color}" stroke="${color}" stroke-width="${round(width - 1)}" fill-opacity="${opacity}" stroke-opacity="${opacity}"`;
    return `<tspan dx="${at === 0 ? 0 : 18}" ${ink}>${sign}</tspan><tspan dx="6">${escapeMarkup(label)}</tspan>`;
  });
  return `<text x="${RIGHT}" y="${y}" text-anchor="end" font-size="13" fill="${INK}">${entries.join('')}</text>`;
}

/** Ticks at whole iterations, from the first to the last. */
function iterationAxis(all: readonly number[]): Axis {
  const first = all.reduce((a, b) => Math.min(a, b), all[0] ?? 0);
  const last = all.reduce((a, b) => Math.max(a, b), first + 1);
  const step = Math.max(1, niceStep((last - first) / ((RIGHT - MARGIN.left) / TICK_GAP.x)));
  const ticks = Array.from({ length: Math.floor(last / step) + 1 }, (_, i) => i * step).filter((tick) => tick >= first);
  return { ticks, at: (value) => MARGIN.left + ((value - first) / (last - first)) * (RIGHT - MARGIN.left) };
}

/** An axis from a round number below all points and error bars to one above them. */
function valueAxis(series: readonly Series[], top: number, bottom: number): Axis {
  const ends = series
    .flatMap(({ points }) => points.flatMap(({ y, error }) => [y, y - error, y + error]))
    .filter(Number.isFinite);
  const low = ends.reduce((a, b) => Math.min(a, b), Infinity);
  const high = ends.reduce((a, b) => Math.max(a, b), -Infinity);
  const [from, to] =
    low > high ? [0, 1] : low === high ? [low - (Math.abs(low) || 1) / 2, low + (Math.abs(low) || 1) / 2] : [low, high];
  const step = niceStep((to - from) / ((bottom - top) / TICK_GAP.y));
  const least = Math.floor(from / step + 1e-9);
  const most = Math.ceil(to / step - 1e-9);
  // Multiples of the step, without the rounding errors of summed fractions.
  const ticks = Array.from({ length: most - least + 1 }, (_, i) => Number(((least + i) * step).toPrecision(12)));
  return { ticks, at: (value) => bottom - ((value - least * step) / ((most - least) * step)) * (bottom - top) };
}

/** An axis from a power of ten below all points to one above them. */
function powerAxis(series: readonly Series[], top: number, bottom: number): Axis {
  const values = series.flatMap(({ points }) => points.map(({ y }) => y)).filter(Number.isFinite);
  const least = Math.floor(Math.log10(values.reduce((a, b) => Math.min(a, b), Infinity)));
  const most = Math.max(least + 1, Math.ceil(Math.log10(values.reduce((a, b) => Math.max(a, b), 0))));
  const every = Math.ceil((most - least) / ((bottom - top) / TICK_GAP.y));
  const ticks = Array.from({ length: Math.floor((most - least) / every) + 1 }, (_, i) =>
    Number(`1e${least + i * every}`),
  );
  return { ticks, at: (value) => bottom - ((Math.log10(value) - least) / (most - least)) * (bottom - top) };
}

/** Rounds to 1, 2, 5 or 10 times a power of ten. */
function niceStep(about: number): number {
  const power = 10 ** Math.floor(Math.log10(about));
  const share = about / power;
  return power * (share < 1.5 ? 1 : share < 3.5 ? 2 : share < 7.5 ? 5 : 10);
}

function few(points: readonly Point[]): readonly Pick<Point, 'x' | 'y'>[] {
  if (points.length <= MAX_POINTS) return points;
  const curve = finiteCurve(
    points.map(({ x }) => x),
    points.map(({ y }) => y),
  );
  const { iterations, mean } = condense(curve, MAX_POINTS);
  return iterations.map((x, at) => ({ x, y: mean[at] }));
}

function isMarked({ style }: Pick<Series, 'style'>): boolean {
  return style === 'circles' || style === 'squares';
}

function showNumber(value: number): string {
  const plain = value === 0 || (Math.abs(value) >= 1e-4 && Math.abs(value) < 1e6);
  return plain ? String(value) : value.toExponential();
}

/** Rounds to a hundredth of a pixel. */
function round(value: number): number {
  return Math.round(value * 100) / 100;
}

interface Placed {
  readonly x: number;
  readonly y: number;
  readonly size?: number;
  readonly color?: string;
  readonly weight?: 'normal' | 'bold';
  readonly anchor?: 'start' | 'middle' | 'end';
  /** Whether the text is rotated to be read from below. */
  readonly turned?: boolean;
}

function text(words: string, place: Placed): string {
  const { x, y, size = 13, color = INK, weight = 'normal', anchor = 'start', turned = false } = place;
  if (words === '') return '';
  const turn = turned ? ` transform="rotate(-90 ${x} ${y})"` : '';
  return `<text x="${round(x)}" y="${round(y)}" text-anchor="${anchor}" font-size="${round(size)}" font-weight="${weight}" fill="${color}"${turn}>${escapeMarkup(words)}</text>`;
}
