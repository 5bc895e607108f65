/** Prompt files of the user's own, with named placeholders for the instruction and for each image. */
import { ConfigError } from '../../core/errors.js';
import { readTextFile } from '../../core/text.js';
import type { JudgeImage } from './images.js';
import type { JudgeMessage } from './judge.js';
import { onOneLine } from './prompts.js';

/**
 * The images that a question may show: the source, the edit, two edits of one source, a reference, or a `sequence` of images with words
 * between them.
 */
export type ImageName = 'source' | 'edited' | 'first' | 'second' | 'reference' | 'sequence';

/** The placeholders of a question. Its file must have each of them. */
export interface Placeholders<Name extends ImageName> {
  readonly images: readonly Name[];
  /** The names of texts, such as `instruction`. */
  readonly words: readonly string[];
}

export interface PromptTemplate<Name extends ImageName> {
  /** Null if the file has no line `===`. */
  readonly system: string | null;
  /** Texts and images in their order. A text may contain the placeholders of `words`. */
  readonly parts: readonly (string | { readonly image: Name })[];
}

/** The line between the system message and the user's text. */
const divider = /^===[ \t]*\r?\n/m;
const placeholder = /\{[a-z_]+\}/g;

/**
 * Reads a prompt file, which is sent as it is, apart from its placeholders. Raises ConfigError for one that cannot be read, and for one
 * with a missing, repeated or unknown placeholder. `where` names the setting, and `next` is advice on getting such a file.
 */
export function readTemplate<Name extends ImageName>(
  file: string,
  placeholders: Placeholders<Name>,
  { where, next }: { readonly where: string; readonly next: string },
): PromptTemplate<Name> {
  const wrong = (found: string, cause?: unknown): ConfigError =>
    new ConfigError(`the prompt file '${file}' ${found}`, { where, next, cause });
  let text: string;
  try {
    text = readTextFile(file, ConfigError);
  } catch (cause) {
    if (cause instanceof ConfigError) throw cause;
    throw wrong('cannot be read', cause);
  }
  const pieces = text.split(divider);
  if (pieces.length > 2) {
    throw wrong("has several lines '==='; allowed: one, between the system message and the user's text");
  }
  const [system, words] = pieces.length === 2 ? pieces : [null, text];
  const { images } = placeholders;
  const marks = namesOf(placeholders).map((name) => `{${name}}`);
  const found: readonly string[] = words.match(placeholder) ?? [];
  const allowed = `allowed: each of ${marks.join(', ')}, and no others`;
  const unknown = found.find((mark) => !marks.includes(mark));
  if (unknown !== undefined) throw wrong(`has ${unknown}; ${allowed}`);
  const misplaced = system?.match(placeholder)?.[0];
  if (misplaced !== undefined) throw wrong(`has ${misplaced} in its system message; allowed: below the line '==='`);
  const missing = marks.find((mark) => !found.includes(mark));
  if (missing !== undefined) throw wrong(`has no ${missing}; ${allowed}`);
  const again = images.map((name) => `{${name}}`).find((mark) => found.indexOf(mark) !== found.lastIndexOf(mark));
  if (again !== undefined) throw wrong(`has ${again} more than once; ${allowed}`);
  const named = new Map<string, Name>(images.map((name) => [`{${name}}`, name]));
  const parts = words
    .split(new RegExp(`(${[...named.keys()].map((mark) => mark.replace(/[{}]/g, '\\$&')).join('|')})`))
    .flatMap((part): PromptTemplate<Name>['parts'] => {
      const image = named.get(part);
      return image === undefined ? (part === '' ? [] : [part]) : [{ image }];
    });
  return { system: system === null ? null : system.trim(), parts };
}

/** All names of placeholders, those of texts first. */
export function namesOf({ images, words }: Placeholders<ImageName>): readonly string[] {
  return [...words, ...images];
}

/** An image of a question, or images with words between them. */
export type ShownImage = JudgeImage | readonly (string | JudgeImage)[];

/** The messages of a question: the template with its texts, each on one line and without control tokens, and its images. */
export function fillTemplate<Name extends ImageName>(
  { system, parts }: PromptTemplate<Name>,
  words: Readonly<Record<string, string>>,
  images: Readonly<Record<Name, ShownImage>>,
): JudgeMessage[] {
  const fill = (text: string): string =>
    text.replace(placeholder, (mark) => {
      const name = mark.slice(1, -1);
      return Object.hasOwn(words, name) ? onOneLine(words[name]) : mark;
    });
  const user: JudgeMessage = {
    role: 'user',
    parts: parts.flatMap((part) => (typeof part === 'string' ? fill(part) : images[part.image])),
  };
  return system === null ? [user] : [{ role: 'system', parts: [system] }, user];
}
