/** Clips as files: an AVI of PNG frames loses nothing, and holds how far apart its frames are. */

/** The largest number in the header's fraction of a second. */
const MOST = 2 ** 31 - 1;

/**
 * Frames as PNG files of one size, `secondsPerFrame` apart, as one file. The time is stored as the nearest fraction of whole numbers below 2^31.
 */
export function aviOf(
  frames: readonly Uint8Array[],
  { width, height }: { readonly width: number; readonly height: number },
  secondsPerFrame: number,
): Buffer {
  const [scale, rate] = fractionOf(secondsPerFrame);
  const largest = Math.max(...frames.map(({ length }) => length));
  const format = fourcc('MPNG');
  const main = numbers(
    ...[Math.min(MOST, Math.round(1e6 * secondsPerFrame)), 0, 0, HAS_INDEX, frames.length, 0, 1, largest],
    ...[width, height, 0, 0, 0, 0],
  );
  const stream = Buffer.concat([
    ...[fourcc('vids'), format],
    numbers(0, 0, 0, scale, rate, 0, frames.length, largest, 0xffffffff, 0),
    ...[shorts(0, 0, width, height)],
  ]);
  const picture = Buffer.concat([
    numbers(40, width, height),
    shorts(1, 24),
    format,
    numbers(width * height * 3, 0, 0, 0, 0),
  ]);
  const headers = list('hdrl', [chunk('avih', main), list('strl', [chunk('strh', stream), chunk('strf', picture)])]);
  const chunks = frames.map((frame) => chunk(FRAME, frame));
  let offset = 4;
  const index = chunks.map((made, i) => {
    const entry = Buffer.concat([fourcc(FRAME), numbers(KEY_FRAME, offset, frames[i].length)]);
    offset += made.length;
    return entry;
  });
  const body = [fourcc('AVI '), headers, list('movi', chunks), chunk('idx1', Buffer.concat(index))];
  return chunk('RIFF', Buffer.concat(body));
}

const HAS_INDEX = 0x10;
const KEY_FRAME = 0x10;
/** Of the first stream, compressed. */
const FRAME = '00dc';

function fourcc(text: string): Buffer {
  return Buffer.from(text, 'latin1');
}

function numbers(...values: readonly number[]): Buffer {
  const out = Buffer.alloc(4 * values.length);
  values.forEach((value, i) => out.writeUInt32LE(value, 4 * i));
  return out;
}

function shorts(...values: readonly number[]): Buffer {
  const out = Buffer.alloc(2 * values.length);
  values.forEach((value, i) => out.writeUInt16LE(value, 2 * i));
  return out;
}

/** Begins at even places. */
function chunk(name: string, content: Uint8Array): Buffer {
  return Buffer.concat([fourcc(name), numbers(content.length), content, Buffer.alloc(content.length % 2)]);
}

function list(kind: string, chunks: readonly Buffer[]): Buffer {
  return chunk('LIST', Buffer.concat([fourcc(kind), ...chunks]));
}

/** The last continued fraction of a positive number whose parts are small enough. */
export function fractionOf(value: number): [numerator: number, denominator: number] {
  let [before, now] = [
    [0, 1],
    [1, 0],
  ];
  for (let rest = value; ;) {
    const whole = Math.floor(rest);
    const next = [whole * now[0] + before[0], whole * now[1] + before[1]];
    if (next[0] > MOST || next[1] > MOST) break;
    [before, now] = [now, next];
    // A double tells about 15 digits: what is left beyond them is of its rounding.
    if (Math.abs(now[0] / now[1] - value) <= 1e-15 * value) break;
    rest = 1 / (rest - whole);
  }
  return [now[0], now[1]];
}
