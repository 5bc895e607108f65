import { describe, expect, it } from 'vitest';
import { alignColumns, clip, formatTable, textWidth, wrap } from '../../src/core/terminal.js';

const columns = [
  { title: 'run', alone: true },
  { title: 'n', align: 'right' as const },
  { title: 'why', wraps: true },
];
const rows = [
  ['a', 1, 'short'],
  ['kl-3e-4__lr-base__seed-1', 12, 'it was started with other settings, and these decide its result'],
];

describe('a table', () => {
  it('is as wide as its content if there is room', () => {
    expect(formatTable(columns, [rows[0]], { width: 80 }).split('\n')).toEqual([
      'run  n  why',
      '───  ─  ─────',
      'a    1  short',
    ]);
  });

  it('wraps the columns that may, then lets long names stand alone, whole', () => {
    expect(formatTable(columns, rows, { width: 60 }).split('\n')).toEqual([
      'run                        n  why',
      '────────────────────────  ──  ──────────────────────────────',
      'a                          1  short',
      'kl-3e-4__lr-base__seed-1  12  it was started with other',
      '                              settings, and these decide its',
      '                              result',
    ]);
    const narrow = formatTable(columns.slice(0, 2), [rows[1]], { width: 24 }).split('\n');
    expect(narrow.slice(2)).toEqual(['kl-3e-4__lr-base__seed-1', '                      12']);
  });

  it('has lines below its rows, indented and wrapped', () => {
    const table = formatTable([{ title: 'run' }], [['a']], { width: 20, below: () => ['one two three four five'] });
    expect(table.split('\n')).toEqual(['run', '───', 'a', '    one two three', '    four five']);
  });

  it('counts what a terminal shows: wide letters twice, colors not at all', () => {
    expect(textWidth('画\u001b[31mx\u001b[0m')).toBe(3);
    expect(formatTable([{ title: 'x' }, { title: 'y' }], [['画', 1]]).split('\n')[2]).toBe('画  1');
  });
});

describe('text', () => {
  it('is cut in its middle', () => {
    expect(clip('abcdefghij', 7)).toBe('abc…hij');
    expect(textWidth(clip('画画画画画画', 7))).toBeLessThanOrEqual(7);
    expect(clip('abc', 2)).toBe('ab');
  });

  it('is wrapped between words, and within those that are too long', () => {
    expect(wrap('one two threefourfive', 8)).toEqual(['one two', 'threefou', 'rfive']);
  });

  it.each([
    ['/data/emu3/stage2_finetune/checkpoint-12000', 16, ['/data/emu3/', 'stage2_finetune/', 'checkpoint-12000']],
    ['of Qwen/Qwen2.5-VL-72B-Instruct now', 16, ['of', 'Qwen/Qwen2.5-VL-', '72B-Instruct now']],
    ['[0.1234,0.3e-4,0.75]', 9, ['[0.1234,', '0.3e-4,', '0.75]']],
    ['sqrt(viescore_pqxground_score)', 15, ['sqrt(viescore_', 'pqxground_', 'score)']],
    ['\u001b[31ma_long-word\u001b[39m', 8, ['\u001b[31ma_long-', 'word\u001b[39m']],
  ])('breaks a long word behind its punctuation: %j', (text, width, lines) => {
    expect(wrap(text, width)).toEqual(lines);
  });

  it('is in columns whose last one wraps', () => {
    expect(alignColumns([['time', 'a b c d e f g h'], ['x']], 16)).toEqual(['time  a b c d e f', '      g h', 'x']);
  });
});
