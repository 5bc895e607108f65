/**
 * Inpainting data in the layout `self_bench`: a folder with
 *
 *   self_bench.txt    a sample's number and its prompt per line, such as `12 a sign that says "BAT"`
 *   12_source.png     the context. The area to paint over may show anything
 *   12_mask.png       white in the area to paint, black outside of it
 *   12_ref.png        the expected image
 *   SHA256SUMS        optional, from `sha256sum *.png > SHA256SUMS`. Every file is then checked
 *
 * A line may also contain a number and a text, as in Calligrapher's data: `50-Delia` has the prompt `The text is 'Delia'` and the files
 * test50_source.png, test50_mask.png and test50_ref.png (train/dataset.py of https://github.com/yuriYanZeXuan/Calligrapher).
 */
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { DataError } from '../core/errors.js';
import { sha256 } from '../core/images/image.js';
import { readTextFile } from '../core/text.js';
import { missingFileAdvice, type ListDigest } from './datalist.js';
import { pixelDigest, type ComparedSample } from './overlap.js';
import { type SampleSource, oneOf } from './types.js';

export const SELF_BENCH_NAME = 'self_bench.txt';
export const SUMS_NAME = 'SHA256SUMS';

/** The files of a sample, `<stem>_<member>.png`. */
export const MEMBERS = ['source', 'mask', 'ref'] as const;
export type Member = (typeof MEMBERS)[number];

/** One sample, as stored in its files. `readTriplet` decodes and checks them. */
export interface InpaintSample {
  /** The sample's number in the list, after the name of its dataset if it has one. */
  readonly id: string;
  readonly prompt: string;
  readonly sourcePng: Uint8Array;
  readonly maskPng: Uint8Array;
  readonly refPng: Uint8Array;
  /** The path of each member on this machine, for messages. */
  readonly paths: Readonly<Record<Member, string>>;
}

/** Checks a prompt of a line. Raises DataError, naming `where`, for one that the run cannot use. */
export type PromptCheck = (prompt: string, where: string) => void;

interface Line {
  readonly number: string;
  /** The prefix of its files' names. */
  readonly stem: string;
  readonly prompt: string;
  /** The list and the line, counted from 1, for messages. */
  readonly where: string;
}

/** The content of a list. The images are not opened. */
export interface SelfBenchList {
  readonly path: string;
  readonly folder: string;
  /** Lines that are not blank, whatever is wrong with them. */
  readonly samples: number;
  /** The complete samples, judged by their names. */
  readonly lines: readonly Line[];
  /** All problems: of lines, prompts, missing files, SHA256SUMS. */
  readonly problems: readonly DataError[];
  /** SHA-256 by file name. Null without SHA256SUMS. */
  readonly sums: ReadonlyMap<string, string> | null;
}

const FORM =
  'Write a number and a prompt on each line, such as: 12 a sign that says "BAT"; or a number and a text: 50-Delia';

/** The name of a sample's file. */
export function memberName(stem: string, member: Member): string {
  return `${stem}_${member}.png`;
}

/**
 * Reads the list of a dataset (its folder, or the list itself) and checks that the files in it exist. `problems` has
 * the problems of all samples. Raises DataError only for a missing or empty list.
 */
export function readSelfBench(given: string, checkPrompt: PromptCheck = () => undefined): SelfBenchList {
  const absolute = resolve(given);
  const isFolder = existsSync(absolute) && statSync(absolute).isDirectory();
  const path = isFolder ? join(absolute, SELF_BENCH_NAME) : absolute;
  const folder = dirname(path);
  const problems: DataError[] = [];
  const all = readLines(path, problems);
  const samples = all.length + problems.length;
  if (samples === 0) {
    throw new DataError('the list of samples is empty', { where: path, next: FORM });
  }
  const present = new Set(readdirSync(folder));
  const sums = present.has(SUMS_NAME) ? readSums(join(folder, SUMS_NAME), problems) : null;
  const lines = all.filter((line) => {
    const before = problems.length;
    collect(problems, () => checkPrompt(line.prompt, line.where));
    for (const member of MEMBERS) problems.push(...memberProblems(line, member, folder, present, sums));
    return problems.length === before;
  });
  return { path, folder, samples, lines, problems, sums };
}

function collect(problems: DataError[], look: () => void): void {
  try {
    look();
  } catch (cause) {
    if (!(cause instanceof DataError)) throw cause;
    problems.push(cause);
  }
}

/** A number, which a mark such as `:` or `.` may follow, white space, and the prompt. */
const LINE = /^\s*(\d+)[:.,)|]?\s+(\S.*?)\s*$/u;
/**
 * A number, a hyphen, and the text of the image, without double quotation marks, which would seem to quote a part of
 * it.
 */
const TEXT_LINE = /^\s*(\d+)-\s*([^\s"\u201C-\u201F\uFF02][^"\u201C-\u201F\uFF02]*?)\s*$/u;

/** The sample of a line. Null for a line of neither form. */
function sampleOf(line: string): Pick<Line, 'number' | 'stem' | 'prompt'> | null {
  const prompted = LINE.exec(line);
  if (prompted !== null) return { number: prompted[1], stem: prompted[1], prompt: prompted[2] };
  const text = TEXT_LINE.exec(line);
  return text === null ? null : { number: text[1], stem: `test${text[1]}`, prompt: `The text is '${text[2]}'` };
}

/** The readable lines, each number once, without blank ones. */
function readLines(path: string, problems: DataError[]): Line[] {
  const lines: Line[] = [];
  const seen = new Map<string, number>();
  for (const [i, text] of textIn(path).split(/\r?\n/).entries()) {
    if (text.trim() === '') continue;
    const where = `${path}:${i + 1}`;
    const sample = sampleOf(text);
    if (sample === null) {
      problems.push(lineProblem(text, where));
      continue;
    }
    const { number } = sample;
    // 7 and 007 would name different files, but readers of the list see one sample.
    const value = number.replace(/^0+(?=\d)/, '');
    const first = seen.get(value);
    if (first === undefined) {
      seen.set(value, i + 1);
      lines.push({ ...sample, where });
      continue;
    }
    const next = 'Give each sample its own number.';
    problems.push(new DataError(`the number ${value} is already on line ${first}`, { where, next }));
  }
  return lines;
}

function lineProblem(text: string, where: string): DataError {
  const found = /^\s*\d+-.*["\u201C-\u201F\uFF02]/u.test(text)
    ? 'the text behind the hyphen has a double quotation mark'
    : /^\s*\d+\W*$/u.test(text)
      ? 'the line has a number and no prompt'
      : 'the line does not begin with a number';
  return new DataError(`${found}: ${JSON.stringify(text.slice(0, 80))}`, { where, next: FORM });
}

function textIn(path: string): string {
  try {
    return readTextFile(path);
  } catch (cause) {
    if (cause instanceof DataError) throw cause;
    const code = (cause as NodeJS.ErrnoException).code ?? String(cause);
    const found = code === 'ENOENT' ? `${basename(path)} is missing` : `cannot be read (${code})`;
    throw new DataError(found, { where: path, next: missingFileAdvice(path), cause });
  }
}

const SUM = /^([0-9a-f]{64}) [ *](?:\.\/)?(.+)$/;

function readSums(path: string, problems: DataError[]): ReadonlyMap<string, string> {
  const sums = new Map<string, string>();
  for (const [i, line] of textIn(path).split(/\r?\n/).entries()) {
    if (line === '') continue;
    const parts = SUM.exec(line);
    if (parts === null) {
      const where = `${path}:${i + 1}`;
      problems.push(new DataError('the line is not a SHA-256 with a name', { where, next: RESUM }));
      continue;
    }
    sums.set(parts[2], parts[1]);
  }
  return sums;
}

const RESUM = `Write it again: sha256sum *.png > ${SUMS_NAME}; or remove it.`;

function memberProblems(
  { number, stem, where }: Line,
  member: Member,
  folder: string,
  present: ReadonlySet<string>,
  sums: SelfBenchList['sums'],
): DataError[] {
  const name = memberName(stem, member);
  if (!present.has(name)) {
    const next = `A sample has three files: ${MEMBERS.map((each) => memberName(stem, each)).join(', ')}.`;
    return [new DataError(`sample ${number} has no ${name} in ${folder}`, { where, next })];
  }
  if (sums === null || sums.has(name)) return [];
  return [new DataError(`${name} is not in ${SUMS_NAME}`, { where, next: RESUM })];
}

/** A dataset of the complete samples of a list, ignoring the others. `openSelfBench` rejects those. */
export class SelfBench implements SampleSource<InpaintSample> {
  readonly remark = null;
  readonly #list: SelfBenchList;
  readonly #held: Map<string, string>;
  #digest: ListDigest | null = null;

  /** `prefix` distinguishes its samples from those of other datasets. */
  constructor(
    readonly name: string,
    list: SelfBenchList,
    private readonly prefix: string | null = null,
  ) {
    this.#list = list;
    this.#held = new Map(list.sums);
  }

  get length(): number {
    return this.#list.lines.length;
  }

  /** Without SHA256SUMS the first request reads every file once. `read` compares with the digests from then on. */
  get digest(): ListDigest {
    return (this.#digest ??= this.#readDigest());
  }

  read(index: number): InpaintSample {
    const line = this.#list.lines[index] as Line | undefined;
    if (line === undefined) {
      throw new DataError(`there is no sample ${index}: the list has ${this.length}`, { where: this.#list.path });
    }
    const { number, stem, prompt } = line;
    const path = (member: Member): string => join(this.#list.folder, memberName(stem, member));
    return {
      id: this.prefix === null ? number : `${this.prefix}/${number}`,
      prompt,
      sourcePng: this.#bytes(stem, 'source'),
      maskPng: this.#bytes(stem, 'mask'),
      refPng: this.#bytes(stem, 'ref'),
      paths: { source: path('source'), mask: path('mask'), ref: path('ref') },
    };
  }

  #readDigest(): ListDigest {
    const { lines } = this.#list;
    const files = lines.flatMap(({ stem }) =>
      MEMBERS.map((member) => {
        const name = memberName(stem, member);
        const held = this.#held.get(name) ?? sha256(this.#bytes(stem, member));
        this.#held.set(name, held);
        return held;
      }),
    );
    const ids = sha256(JSON.stringify(lines.map(({ number, prompt }) => [number, prompt])));
    return { ids, files: sha256(files.join(' ')) };
  }

  #bytes(stem: string, member: Member): Uint8Array {
    const name = memberName(stem, member);
    const where = join(this.#list.folder, name);
    let bytes: Uint8Array;
    try {
      bytes = readFileSync(where);
    } catch (cause) {
      const code = (cause as NodeJS.ErrnoException).code ?? String(cause);
      throw new DataError(`cannot read a sample of ${this.#list.path} (${code})`, {
        where,
        next: missingFileAdvice(where),
        cause,
      });
    }
    const held = this.#held.get(name);
    if (held === undefined || held === sha256(bytes)) return bytes;
    throw new DataError('a sample has changed: its SHA-256 differs', {
      where,
      next: `Another program changed the dataset: copy or create it again. If the change is intended: ${RESUM}`,
    });
  }
}

/**
 * Opens a dataset: its folder, or its `self_bench.txt`. Images are read on request. Raises one DataError with all
 * problems of its lines, its prompts (by `checkPrompt`) and the names of its files. Its samples are called
 * `prefix/number`, or by their numbers.
 */
export function openSelfBench(
  path: string,
  checkPrompt?: PromptCheck,
  prefix: string | null = null,
): SampleSource<InpaintSample> {
  return new SelfBench(path, wholeList(path, checkPrompt), prefix);
}

/** The list of a dataset whose samples have all their files and pass `look`. Raises the DataErrors of `openSelfBench`. */
export function wholeList(
  path: string,
  checkPrompt?: PromptCheck,
  look: (list: SelfBenchList) => readonly DataError[] = () => [],
): SelfBenchList {
  const list = readSelfBench(path, checkPrompt);
  const problems = [...list.problems, ...look(list)];
  if (problems.length > 0) throw oneOf(list.path, problems);
  return list;
}

/** A sample for the comparison with others: its prompt and its image before the edit. */
export function comparedInpaint(source: SampleSource<InpaintSample>, index: number): ComparedSample {
  const { id, prompt, sourcePng, paths } = source.read(index);
  return { id, words: prompt, image: () => pixelDigest(sourcePng, paths.source) };
}
