/** What an exported folder says of its tokenizer: tokenizer_config.json with the tokens that end and fill up. */
import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { CONFIG_FILE, GENERATION_FILE, readJson, TOKENIZER_FILE } from '../../models/files.js';
import { specialNames } from '../../models/tokenizer/open.js';
import { TOKENIZER_CONFIG_FILE } from '../../models/tokenizer/texts.js';

const id = z
  .union([z.int(), z.array(z.int()).transform(([first]) => first ?? null)])
  .nullish()
  .catch(null);
const ids = z.looseObject({ eos_token_id: id, pad_token_id: id }).catch({ eos_token_id: null, pad_token_id: null });
/** A model that also sees keeps what concerns words in a section of its own. */
const nested = z.looseObject({ text_config: ids }).catch({ text_config: { eos_token_id: null, pad_token_id: null } });
const words = z.object({
  added_tokens: z
    .array(z.object({ id: z.int(), content: z.string() }))
    .nullish()
    .catch(null),
  model: z
    .object({ vocab: z.record(z.string(), z.int()).nullish().catch(null) })
    .nullish()
    .catch(null),
});

/**
 * Adds `eos_token` and `pad_token` to a folder's tokenizer_config.json where it has none: those that its other files name, else the first end of
 * generation_config.json or config.json; an end fills up where nothing else does. A folder without tokenizer.json, or one of which nothing
 * is known, stays as it is. `settings` are the folders whose generation settings apply, the most important first. Raises CheckpointError for files that
 * cannot be read.
 */
export function completeTokenizerConfig(folder: string, settings: readonly string[]): void {
  const tokenizer = join(folder, TOKENIZER_FILE);
  if (!existsSync(tokenizer)) return;
  const parsed = readJson(tokenizer);
  const file = join(folder, TOKENIZER_CONFIG_FILE);
  // A class is only missing where the whole file is: without one, other programs guess it by the model.
  const own = existsSync(file)
    ? (readJson(file) as Readonly<Record<string, unknown>>)
    : { tokenizer_class: 'PreTrainedTokenizerFast' };
  const named = specialNames(folder, parsed);
  const stated = settings
    .flatMap((from) => [join(from, GENERATION_FILE), join(from, CONFIG_FILE)])
    .filter((path) => existsSync(path))
    .flatMap((path) => {
      const json = readJson(path);
      return [ids.parse(json), nested.parse(json).text_config];
    });
  const tokenOf = (key: 'eos_token_id' | 'pad_token_id'): string | undefined =>
    wordOf(parsed, stated.map((one) => one[key]).find((found) => typeof found === 'number') ?? null);
  const eos = named['eos_token'] ?? tokenOf('eos_token_id');
  const pad = named['pad_token'] ?? tokenOf('pad_token_id') ?? eos;
  const missing = Object.entries({ eos_token: eos, pad_token: pad }).filter(
    ([key, token]) => token !== undefined && (own[key] ?? null) === null,
  );
  if (missing.length === 0) return;
  writeFileSync(file, `${JSON.stringify({ ...own, ...Object.fromEntries(missing) }, null, 2)}\n`);
}

function wordOf(tokenizer: unknown, wanted: number | null): string | undefined {
  const { success, data } = words.safeParse(tokenizer);
  if (!success || wanted === null) return undefined;
  const added = data.added_tokens?.find((token) => token.id === wanted)?.content;
  return added ?? Object.entries(data.model?.vocab ?? {}).find(([, one]) => one === wanted)?.[0];
}
