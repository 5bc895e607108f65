/** Files of lines: what is read of them while they grow, are cut, replaced or half-written, and what is appended and taken back. */
import {
  appendFileSync,
  closeSync,
  existsSync,
  mkdirSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { join } from 'node:path';
import { beforeEach, describe, expect, it } from 'vitest';
import {
  FollowedLog,
  MAX_LINE_BYTES,
  type LogDisk,
  LogReader,
  LogWriter,
  linesIn,
  rewriteLines,
  scanLines,
  withLog,
} from '../../src/core/log.js';
import { testFolders } from '../support/folder.js';

const newFolder = testFolders('log');
/** What is read at once at first, and when a file is read from its end. */
const CHUNK = 64 * 1024;
let path: string;
beforeEach(() => {
  path = join(newFolder(), 'lines.jsonl');
});

function raisedBy(action: () => unknown): unknown {
  try {
    action();
  } catch (error) {
    return error;
  }
  throw new Error('nothing was raised');
}
const read = <T>(use: (log: LogReader) => T): T => withLog<T | null>(path, null, use) as T;
const textsOf = (lines: Iterable<{ readonly text: string }>): string[] => [...lines].map(({ text }) => text);

describe('a file of lines', () => {
  it('gives whole lines with their place in bytes, and the bytes of half a line at the end', () => {
    writeFileSync(path, 'ä\n\nlast\nha');
    const seen: [string, number, number][] = [];
    expect(scanLines(path, (line, offset, length) => seen.push([line, offset, length]))).toBe(2);
    expect(seen).toEqual([
      ['ä', 0, 2],
      ['', 3, 0],
      ['last', 4, 4],
    ]);
    expect(read((log) => textsOf(log.lines(3)))).toEqual(['', 'last']);
    expect([...linesIn(Buffer.from('a\nb\nc'), 10)]).toEqual([
      { text: 'a', start: 10, end: 12 },
      { text: 'b', start: 12, end: 14 },
    ]);
  });

  it('has no lines if there is not a file, and keeps none open', () => {
    expect(scanLines(path, () => expect.fail())).toBe(0);
    expect(withLog(path, 'none', () => 'some')).toBe('none');
    writeFileSync(path, 'a\n');
    const log = read((one) => one);
    expect(raisedBy(() => log.bytes(0, 1))).toMatchObject({
      message: expect.stringContaining('cannot read the file') as string,
      where: path,
    });
  });

  it.each([-1, 0, 1])('gives lines across the chunks in which it is read (%i)', (shift) => {
    const lines = [CHUNK + shift, 3 * CHUNK, 0, 5_000_000, 7].map((length, i) => String(i).repeat(length));
    writeFileSync(path, lines.map((line) => `${line}\n`).join(''));
    expect(read((log) => textsOf(log.lines()))).toEqual(lines);
    read((log) => {
      for (const { text, start, end } of log.lines()) expect(log.at(start, end - 1 - start)).toBe(text);
    });
  });

  it('is read no further than a line is long if it has no newlines', () => {
    writeFileSync(path, '{"iteration": 0}\n');
    truncateSync(path, 2 ** 40);
    const lines: string[] = [];
    const tooLong = expect.objectContaining({
      message: `a line has more than ${MAX_LINE_BYTES / 2 ** 20} MiB, more than any line of such a file`,
      where: path,
    }) as Error;
    expect(() => scanLines(path, (line) => lines.push(line))).toThrow(tooLong);
    expect(lines).toEqual(['{"iteration": 0}']);
    expect(() => read((log) => log.last())).toThrow(tooLong);
    expect(() => read((log) => log.piece(17))).toThrow(tooLong);
    expect(read((log) => log.startOfLast(1))).toBe(2 ** 40 - 64 * 2 ** 20);
  });

  it('skips lines that are longer than its caller takes, and counts their bytes', () => {
    writeFileSync(path, `a\n${'b'.repeat(200_000)}\nc\n${'d'.repeat(30)}\n${'e'.repeat(90_000)}`);
    const [lines, long]: [string[], number[]] = [[], []];
    const torn = scanLines(path, (line) => lines.push(line), { longest: 20, onTooLong: (length) => long.push(length) });
    expect([lines, long, torn]).toEqual([['a', 'c'], [200_000, 30], 90_000]);
  });

  it('is taken in pieces, of a line at least', () => {
    writeFileSync(path, `aaa\nbbb\n${'c'.repeat(100)}\nhalf`);
    expect(read((log) => log.piece(0, 8))).toEqual([
      { text: 'aaa', start: 0, end: 4 },
      { text: 'bbb', start: 4, end: 8 },
    ]);
    expect(read((log) => textsOf(log.piece(0, 7)))).toEqual(['aaa']);
    expect(read((log) => textsOf(log.piece(8, 1)))).toEqual(['c'.repeat(100)]);
    expect(read((log) => log.piece(109))).toEqual([]);
  });

  it.each([
    ['', null],
    ['half', null],
    ['\n', ''],
    ['one\n', 'one'],
    ['one\ntwo\nhalf', 'two'],
    [`one\n${'x'.repeat(CHUNK - 1)}\n`, 'x'.repeat(CHUNK - 1)],
    [`one\n${'x'.repeat(CHUNK)}\n`, 'x'.repeat(CHUNK)],
    [`one\n${'x'.repeat(300_000)}\n${'h'.repeat(CHUNK)}`, 'x'.repeat(300_000)],
  ])('has a last line (case %#)', (text, last) => {
    writeFileSync(path, text);
    expect(read((log) => log.last())).toBe(last);
  });

  it('has its last lines found from its end, half a line being one', () => {
    const long = 'x'.repeat(CHUNK - 1);
    writeFileSync(path, `a\nb\n${long}\nc\n`);
    const from = (count: number): string => read((log) => readFileSync(path, 'utf8').slice(log.startOfLast(count)));
    expect([0, 1, 2, 3, 4, 5].map(from)).toEqual([
      '',
      'c\n',
      `${long}\nc\n`,
      `b\n${long}\nc\n`,
      `a\nb\n${long}\nc\n`,
      `a\nb\n${long}\nc\n`,
    ]);
    appendFileSync(path, 'ha');
    expect([1, 2].map(from)).toEqual(['ha', 'c\nha']);
    writeFileSync(path, '');
    expect(from(3)).toBe('');
  });

  it('has lines with a mark found from both ends, wherever chunks begin', () => {
    const mark = Buffer.from('"validation/');
    const find = (): (string | undefined)[] =>
      read((log) => [log.firstWith(mark, 2 ** 24)?.text, log.lastWith(mark, 2 ** 24)?.text]);
    const [first, last] = ['{"n":1,"validation/a":1}', '{"n":2,"validation/a":2}'];
    for (let shift = 0; shift < 30; shift++) {
      const padding = 'z'.repeat(CHUNK - 40 + shift);
      writeFileSync(path, `${padding}\n${first}\n${'y'.repeat(300_000)}\n${last}\n${padding}\n`);
      expect(find()).toEqual([first, last]);
    }
    writeFileSync(path, `${first}\n{"n":2,"validation/`);
    expect(find()).toEqual([first, first]);
    writeFileSync(path, 'no mark\n');
    expect(find()).toEqual([undefined, undefined]);
    writeFileSync(path, `${'x'.repeat(100)}\n${first}\n${'x'.repeat(100)}\n`);
    expect(read((log) => [log.firstWith(mark, 100), log.lastWith(mark, 100)])).toEqual([null, null]);
    writeFileSync(path, `${first}\n${last}\n`);
    const from = (start: number, most = 100): string | undefined =>
      read((log) => log.firstWith(mark, most, start)?.text);
    expect([0, 1, first.length, first.length, 100].map((start) => from(start))).toEqual([
      first,
      first,
      last,
      last,
      undefined,
    ]);
    expect(from(first.length, 10)).toBeUndefined();
  });
});

describe('following a file', () => {
  let followed: FollowedLog;
  let seen = 0;
  const look = (keep = true): [string[], boolean, boolean] | null => {
    const found = followed.look(seen);
    if (found === null) return null;
    if (found.replaced || found.shorter) seen = 0;
    const lines = found.log.piece(seen);
    seen = lines.at(-1)?.end ?? seen;
    if (!keep) followed.close();
    return [textsOf(lines), found.replaced, found.shorter];
  };
  beforeEach(() => {
    followed = new FollowedLog(path);
    seen = 0;
  });

  it.each([true, false])('gives what comes, and tells a file that was cut or replaced (kept open: %s)', (keep) => {
    expect(look(keep)).toBeNull();
    writeFileSync(path, 'a\nha');
    expect(look(keep)).toEqual([['a'], true, false]);
    appendFileSync(path, 'lf\n');
    expect(look(keep)).toEqual([['half'], false, false]);
    expect(look(keep)).toEqual([[], false, false]);
    truncateSync(path, 2);
    expect(look(keep)).toEqual([['a'], false, true]);
    // Another file of the same size.
    writeFileSync(`${path}.new`, 'b\n');
    renameSync(`${path}.new`, path);
    expect(look(keep)).toEqual([['b'], true, false]);
    rmSync(path);
    expect(look(keep)).toBeNull();
    writeFileSync(path, 'c\n');
    expect(look(keep)).toEqual([['c'], true, false]);
    followed.close();
  });

  it('can read a file that was moved away to its end', () => {
    writeFileSync(path, 'a\n');
    look();
    renameSync(path, `${path}.1`);
    appendFileSync(`${path}.1`, 'late\n');
    expect([followed.moved, followed.current?.last()]).toEqual([false, 'late']);
    writeFileSync(path, 'b\n');
    expect([followed.moved, followed.current?.last()]).toEqual([true, 'late']);
    expect(look()).toEqual([['b'], true, false]);
    followed.close();
    expect([followed.moved, followed.current]).toEqual([false, null]);
  });

  it('rejects what is no plain file', () => {
    mkdirSync(path);
    expect(() => look()).toThrow('this is a folder, not a plain file');
  });
});

describe('appending', () => {
  const isJson = (line: string): boolean => {
    try {
      JSON.parse(line);
      return true;
    } catch {
      return false;
    }
  };
  const open = (disk?: LogDisk): LogWriter => new LogWriter(path, isJson, disk);
  const text = (): string => readFileSync(path, 'utf8');

  it('puts whole lines behind each other, in folders that it makes, and says where they lie', () => {
    path = join(newFolder(), 'a', 'b.jsonl');
    const writer = open();
    writer.appendLine('{"a":"ä"}');
    const { offset, length } = writer.appendLine('{"b":[1,2]}');
    expect(writer.log.at(offset, length)).toBe('{"b":[1,2]}');
    writer.close();
    expect(text()).toBe('{"a":"ä"}\n{"b":[1,2]}\n');
  });

  it.each([
    ['half a line', '{"iteration":2,"rew'],
    ['a block of zeros', '\0\0\0\0\0\0\n'],
    ['zeros and half a line', '\0\0\0\0\n{"iter'],
    ['half a character', Buffer.from([0x7b, 0x22, 0xc3])],
    ['a line that lacks nothing but its end', '{"iteration":2}'],
    ['a line with a blank for its end', '{"iteration":2} '],
    // The newline before it is the first byte of the last piece that is read.
    ['a line as long as what is read at once', 'x'.repeat(CHUNK)],
  ])('cuts off %s when the file is opened', (_what, torn) => {
    const whole = '{"iteration":0}\n{"iteration":1}\n';
    writeFileSync(path, Buffer.concat([Buffer.from(whole), Buffer.from(torn)]));
    const writer = open();
    expect(writer.repairedBytes).toBe(Buffer.from(torn).length);
    writer.appendLine('{"iteration":2}');
    writer.close();
    expect(text()).toBe(`${whole}{"iteration":2}\n`);
  });

  it('cuts off a torn line that is longer than what is read at once, and a file that is only a torn line', () => {
    // Pieces are read from the end: the newline lies in a piece that begins neither at byte 0 nor at a line.
    for (const before of [10, 100_000]) {
      const whole = `{"x":"${'w'.repeat(before)}"}\n`;
      writeFileSync(path, `${whole}{"x":"${'y'.repeat(100_000)}`);
      open().close();
      expect(text()).toBe(whole);
    }
    writeFileSync(path, 'torn');
    open().close();
    expect(text()).toBe('');
  });

  it('says where it cannot be opened', () => {
    mkdirSync(path);
    expect(raisedBy(open)).toMatchObject({
      message: expect.stringContaining('cannot write (EISDIR)') as string,
      where: path,
    });
  });

  it('takes and gives nothing once it is closed, which may happen twice', () => {
    const writer = open();
    writer.appendLine('{"iteration":1}');
    writer.close();
    writer.close();
    const closed = { message: expect.stringContaining('the journal is closed') as string, where: path };
    for (const action of [() => writer.appendLine('{}'), () => writer.log, () => writer.sync()]) {
      expect(raisedBy(action)).toMatchObject(closed);
    }
    expect(text()).toBe('{"iteration":1}\n');
  });

  it('takes back half a line when the disk is full, and can continue', () => {
    let full = false;
    const writer = open({
      write: (file, bytes, offset, length) => {
        if (full && length < 5) throw Object.assign(new Error('no space'), { code: 'ENOSPC' });
        return writeSync(file, bytes, offset, full ? length - 4 : length);
      },
    });
    writer.appendLine('{"iteration":1}');
    full = true;
    expect(() => writer.appendLine('{"iteration":2}')).toThrow('cannot write (ENOSPC)');
    expect(text()).toBe('{"iteration":1}\n');
    full = false;
    expect(writer.appendLine('{"iteration":3}')).toEqual({ offset: 16, length: 15 });
    writer.close();
    expect(text()).toBe('{"iteration":1}\n{"iteration":3}\n');
  });

  it('reads on from a place while others look at the file', () => {
    const writer = open();
    const { offset, length } = writer.appendLine('{"a":1}');
    const other = openSync(path, 'r');
    expect(new LogReader(other, path).at(offset, length)).toBe('{"a":1}');
    closeSync(other);
    truncateSync(path, 5);
    expect(() => writer.log.at(offset, length)).toThrow('shorter than it was');
    writer.close();
  });

  it('takes lines back and puts others in their place, and leaves a file alone if nothing changes', () => {
    expect(rewriteLines(path, () => null)).toBe(0);
    expect(existsSync(path)).toBe(false);
    writeFileSync(path, 'a\nb\nc\nhalf');
    const before = statSync(path).ino;
    expect(rewriteLines(path, (line) => line)).toBe(0);
    expect([statSync(path).ino, text()]).toEqual([before, 'a\nb\nc\nhalf']);
    expect(rewriteLines(path, (line, number) => (number === 2 ? null : line.toUpperCase()))).toBe(1);
    expect(text()).toBe('A\nC\n');
    expect(
      raisedBy(() =>
        rewriteLines(path, () => {
          throw new Error('no line of mine');
        }),
      ),
    ).toMatchObject({ message: 'no line of mine' });
    expect(text()).toBe('A\nC\n');
  });
});
