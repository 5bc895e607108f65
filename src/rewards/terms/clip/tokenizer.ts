/** CLIP's tokenizer: byte pairs of lower-case words that end in `</w>`, with the normalizer and pre-tokenizer of Hugging Face's CLIPTokenizerFast. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { ConfigError, CheckpointError } from '../../../core/errors.js';
import { readTextFile } from '../../../core/text.js';
import { HuggingFaceTokenizer } from '../../../models/tokenizer/hugging_face.js';
import { firstFile, parseJson, readJson } from './files.js';
import { TOKENIZER_FILE } from '../../../models/files.js';
import { openTokenizer } from '../../../models/tokenizer/open.js';
import { MAKE_TOKENIZER, readConfig, TOKENIZER_CONFIG_FILE, tokenizerJson } from '../../../models/tokenizer/texts.js';
import type { Tokenizer } from '../../../models/tokenizer/tokenizer.js';

export const START = '<|startoftext|>';
export const END = '<|endoftext|>';
export const END_OF_WORD = '</w>';

/** Splits a text into words. At this point the bytes of a word are letters. */
export const clipWords = {
  normalizer: {
    type: 'Sequence',
    normalizers: [
      { type: 'NFC' },
      { type: 'Replace', pattern: { Regex: '\\s+' }, content: ' ' },
      { type: 'Lowercase' },
    ],
  },
  pre_tokenizer: {
    type: 'Sequence',
    pretokenizers: [
      {
        type: 'Split',
        pattern: {
          Regex: "<\\|startoftext\\|>|<\\|endoftext\\|>|'s|'t|'re|'ve|'m|'ll|'d|[\\p{L}]+|[\\p{N}]|[^\\s\\p{L}\\p{N}]+",
        },
        behavior: 'Removed',
        invert: true,
      },
      { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: true },
    ],
  },
};

/** A mark as `tokenizer.json` lists it. A mark that is written out in a text counts as the mark, as it does for Hugging Face. */
export function markJson({ id, content }: { readonly id: number; readonly content: string }) {
  return { id, content, special: true, normalized: false, lstrip: false, rstrip: false, single_word: false };
}

type Merge = string | readonly [string, string];

// Fifty thousand entries each: zod's own check of them takes ten times as long as reading the file.
const vocabularyFile = z.custom<Readonly<Record<string, number>>>(
  (value) => typeof value === 'object' && value !== null && Object.values(value).every(Number.isInteger),
  'a vocabulary must be an object of ids by token',
);
const mergeList = z.custom<readonly Merge[]>(
  (value) => Array.isArray(value) && value.every((merge) => halvesOf(merge as Merge).length === 2),
  'merges must be a list of pairs',
);
const tokenizerFile = z.object({
  model: z.object({
    end_of_word_suffix: z.literal(
      END_OF_WORD,
      `only CLIP's tokenizer, whose words end in ${END_OF_WORD}, is available`,
    ),
    vocab: vocabularyFile,
    merges: mergeList,
  }),
});

/** The input of the model's text half. */
export interface TextTokens {
  /** Start, content, end, then ends as padding. */
  readonly ids: BigInt64Array;
  /** 1 up to the first end, 0 for padding. */
  readonly mask: BigInt64Array;
}

/** Turns texts into the input of a model's text half. */
export interface TextReader {
  /** The highest number of tokens that the model reads, including those around a text. */
  readonly context: number;
  /** The number of tokens. */
  readonly size: number;
  /** Longer texts are cut. */
  encode(text: string): Promise<TextTokens>;
  /** Number of a text's tokens that `encode` cuts off. */
  unread(text: string): Promise<number>;
}

export class ClipTokenizer implements TextReader {
  readonly #tokenizer: HuggingFaceTokenizer;
  /** Ids of the marks. */
  readonly marks: { readonly start: number; readonly end: number };
  readonly size: number;

  /**
   * `context` is the model's number of text positions. Raises ConfigError if the vocabulary lacks CLIP's marks, CheckpointError if a merge
   * makes a token that it lacks.
   */
  constructor(
    vocab: Readonly<Record<string, number>>,
    merges: readonly Merge[],
    readonly context: number,
    where: string,
  ) {
    const [start, end] = [START, END].map((content) => {
      if (Object.hasOwn(vocab, content)) return { id: vocab[content], content };
      throw new ConfigError(`the vocabulary has no ${content}: this is not CLIP's tokenizer`, { where });
    });
    this.marks = { start: start.id, end: end.id };
    this.size = Object.keys(vocab).length;
    const own = [start, end].map(markJson);
    const model = { type: 'BPE', unk_token: END, end_of_word_suffix: END_OF_WORD, vocab, merges: merges.map(halvesOf) };
    this.#tokenizer = new HuggingFaceTokenizer({
      json: JSON.stringify({ version: '1.0', added_tokens: own, ...clipWords, model }),
      own,
      special: { named: {}, added: [] },
      cleanUp: false,
      files: {},
      where,
    });
  }

  /** Reads `tokenizer.json`, else `vocab.json` and `merges.txt`. Raises ConfigError if they are missing or of another kind. */
  static read(folder: string, context: number): ClipTokenizer {
    const whole = join(folder, 'tokenizer.json');
    if (existsSync(whole)) return ClipTokenizer.parse(readTextFile(whole, ConfigError), context, whole);
    const words = firstFile([join(folder, 'vocab.json')], 'tokenizer.json, nor vocab.json with merges.txt', folder);
    const pairs = firstFile([join(folder, 'merges.txt')], 'merges.txt beside vocab.json', folder);
    const lines = readTextFile(pairs, ConfigError).split('\n');
    const merges = lines.filter((line, i) => line.trim() !== '' && !(i === 0 && line.startsWith('#version')));
    return new ClipTokenizer(readJson(words, vocabularyFile), merges, context, words);
  }

  /** Parses a `tokenizer.json`. Only its vocabulary and merges are used. Raises ConfigError, naming `where`, for another kind. */
  static parse(json: string, context: number, where: string): ClipTokenizer {
    const { vocab, merges } = parseJson(json, tokenizerFile, where).model;
    return new ClipTokenizer(vocab, merges, context, where);
  }

  /** The ids of a text between start and end, cut to `context` such that the end stays last. */
  async encode(text: string): Promise<TextTokens> {
    const content = (await this.#tokenizer.encode(text)).slice(0, this.context - 2);
    const ids = new BigInt64Array(this.context).fill(BigInt(this.marks.end));
    const mask = new BigInt64Array(this.context);
    ids[0] = BigInt(this.marks.start);
    content.forEach((id, i) => (ids[i + 1] = BigInt(id)));
    mask.fill(1n, 0, content.length + 2);
    return { ids, mask };
  }

  async unread(text: string): Promise<number> {
    return Math.max(0, (await this.#tokenizer.encode(text)).length + 2 - this.context);
  }
}

/** Files write a pair as a list, or as one string with a space in it. */
function halvesOf(merge: Merge): readonly string[] {
  return typeof merge === 'string' ? merge.split(' ') : Array.isArray(merge) ? merge : [];
}

/** The settings of tokenizer_config.json, in addition to the names of tokens. */
const settingsForm = z.object({
  /** A huge number if the model has no such limit of its own. */
  model_max_length: z.number().positive().nullish(),
  padding_side: z.enum(['left', 'right']).nullish(),
  do_lower_case: z.boolean().nullish(),
});

export class PaddedTokenizer implements TextReader {
  private constructor(
    private readonly tokenizer: Tokenizer,
    readonly context: number,
    private readonly filler: number,
    private readonly side: 'left' | 'right',
    private readonly lowers: boolean,
  ) {}

  /** The number of tokens. */
  get size(): number {
    return this.tokenizer.size;
  }

  /**
   * Texts get `positions` tokens, or fewer if the folder states a smaller limit and that limit applies (`isMost`). `advice`: how to get a missing
   * tokenizer.json. Raises ConfigError without tokenizer.json, CheckpointError for files of another form.
   */
  static read(folder: string, positions: number, { isMost = true, advice = MAKE_TOKENIZER } = {}): PaddedTokenizer {
    if (tokenizerJson(folder) === null) {
      const pieces = existsSync(join(folder, 'spiece.model'));
      throw new ConfigError(`there is no ${TOKENIZER_FILE}${pieces ? '; found spiece.model, which is not read' : ''}`, {
        where: folder,
        next: advice,
      });
    }
    const where = join(folder, TOKENIZER_CONFIG_FILE);
    const tokenizer = openTokenizer(folder);
    const parsed = settingsForm.safeParse(readConfig(folder, TOKENIZER_CONFIG_FILE) ?? {});
    if (!parsed.success) {
      const [issue] = parsed.error.issues;
      throw new CheckpointError(`${issue.path.join('.')}: ${issue.message}`, { where });
    }
    const filler = tokenizer.special['pad_token'];
    if (filler === undefined) {
      throw new CheckpointError('the padding token is missing', {
        where,
        next: 'Add it as pad_token.',
      });
    }
    const { model_max_length: most, padding_side: side, do_lower_case: lowers } = parsed.data;
    return new PaddedTokenizer(
      tokenizer,
      isMost ? Math.min(positions, most ?? Infinity) : positions,
      tokenizer.id(filler),
      side ?? 'right',
      lowers === true,
    );
  }

  /** The ids of a text between the tokenizer's special tokens. A long text is truncated, a short one is padded. */
  async encode(text: string): Promise<TextTokens> {
    const { all, over } = await this.#read(text);
    const kept = over === 0 ? all.ids : [...all.before, ...all.content.slice(0, -over), ...all.behind];
    const at = this.side === 'right' ? 0 : this.context - kept.length;
    const ids = new BigInt64Array(this.context).fill(BigInt(this.filler));
    kept.forEach((id, i) => (ids[at + i] = BigInt(id)));
    const mask = new BigInt64Array(this.context);
    mask.fill(1n, at, at + kept.length);
    return { ids, mask };
  }

  async unread(text: string): Promise<number> {
    return (await this.#read(text)).over;
  }

  async #read(text: string): Promise<{ readonly all: Surrounded; readonly over: number }> {
    const shown = this.lowers ? text.toLowerCase() : text;
    const [content, ids] = await Promise.all([
      this.tokenizer.encode(shown),
      this.tokenizer.encode(shown, { addSpecial: true }),
    ]);
    return { all: surrounded(ids, content), over: Math.max(0, ids.length - this.context) };
  }
}

interface Surrounded {
  readonly ids: readonly number[];
  readonly before: readonly number[];
  readonly content: readonly number[];
  readonly behind: readonly number[];
}

/** The tokens before and after a text's own tokens. */
function surrounded(ids: readonly number[], content: readonly number[]): Surrounded {
  const more = ids.length - content.length;
  for (let at = 0; at <= more; at++) {
    if (content.every((id, i) => ids[at + i] === id)) {
      return { ids, before: ids.slice(0, at), content, behind: ids.slice(at + content.length) };
    }
  }
  return { ids, before: [], content: ids, behind: [] };
}
