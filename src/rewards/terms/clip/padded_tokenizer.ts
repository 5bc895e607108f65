/** The tokenizer of a model whose texts are filled up to one length before it reads them, fillers included: SigLIP's. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { CheckpointError, ConfigError } from '../../../core/errors.js';
import { TOKENIZER_FILE } from '../../../models/files.js';
import { openTokenizer } from '../../../models/tokenizer/open.js';
import { readConfig, TOKENIZER_CONFIG_FILE, tokenizerJson } from '../../../models/tokenizer/texts.js';
import type { Tokenizer } from '../../../models/tokenizer/tokenizer.js';
import type { TextReader, TextTokens } from './tokenizer.js';

/** What tokenizer_config.json says beside the names of tokens. */
const settingsForm = z.object({
  /** A huge number where the model has no such limit of its own. */
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

  /** How many tokens there are. */
  get size(): number {
    return this.tokenizer.size;
  }

  /**
   * Texts get `positions` tokens, or fewer where the folder says so and it counts (`isMost`). Raises ConfigError without tokenizer.json, CheckpointError
   * for files of another form.
   */
  static read(folder: string, positions: number, isMost = true): PaddedTokenizer {
    if (tokenizerJson(folder) === null) {
      const pieces = existsSync(join(folder, 'spiece.model'));
      throw new ConfigError(`there is no ${TOKENIZER_FILE}${pieces ? '; found spiece.model, which is not read' : ''}`, {
        where: folder,
        next: `Copy ${TOKENIZER_FILE} from a repository of the Hub that has one for this model, such as Xenova/siglip-base-patch16-224 for SigLIP's English ones.`,
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
      throw new CheckpointError('nothing says which token fills texts up', {
        where,
        next: 'Name it there: pad_token.',
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

  /** The ids of a text with the tokens that the tokenizer puts around it, cut before those, and filled up. */
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

/** What stands before and behind a text's own tokens. */
function surrounded(ids: readonly number[], content: readonly number[]): Surrounded {
  const more = ids.length - content.length;
  for (let at = 0; at <= more; at++) {
    if (content.every((id, i) => ids[at + i] === id)) {
      return { ids, before: ids.slice(0, at), content, behind: ids.slice(at + content.length) };
    }
  }
  return { ids, before: [], content: ids, behind: [] };
}
