/** What a run needs on this machine, looked at without computing: one line for each kind. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { CheckpointError, ConfigError, DataError } from '../core/errors.js';
import { openDatalist, readListedFile } from '../data/datalist.js';
import { checkRows } from '../data/rows.js';
import { wholeList } from '../data/self_bench.js';
import { readJson, TOKENIZER_FILE } from '../models/files.js';
import { openChatTemplate, tokenCount } from '../models/tokenizer/texts.js';
import { withAdapter } from '../nets/decoder/config.js';
import { checkDecoder } from '../nets/decoder/files.js';
import { describeModel, lacksHubBase, rootOf } from '../policies/tokens/adapter.js';
import type { Need } from '../recipes/recipe.js';
import { targetOf } from '../rewards/terms/ocr/similarity.js';

type NeedOf<K extends Need['kind']> = Extract<Need, { readonly kind: K }>;

const checks: { readonly [K in Need['kind']]: (need: NeedOf<K>) => void } = {
  datalist: ({ path }) => void readListedFile(openDatalist(path), 0),
  rows: ({ path, columns }) => checkRows(path, columns),
  self_bench: ({ path, quoted }) => void wholeList(path, quoted ? targetOf : undefined),
  decoder: lookAtDecoder,
  tokenizer: lookAtTokenizer,
};

/** Raises what is wrong with it, as whoever opens it would. A folder that is not there is none of its matters, nor is an adapter's base that is not. */
export function checkNeed(need: Need): void {
  (checks[need.kind] as (need: Need) => void)(need);
}

function lookAtDecoder({ folder, lora, contextSize }: NeedOf<'decoder'>): void {
  if (!canBeLookedAt(folder)) return;
  const config = describeModel(folder);
  const positions = checkDecoder(rootOf(folder)).contextSize;
  if (lora !== null) withAdapter(config, lora);
  if (positions === null || contextSize <= positions) return;
  throw new ConfigError(
    `policy.model_context_size is ${contextSize}, and the model was made for ${positions} positions`,
    {
      where: folder,
      next: `Set policy.model_context_size to ${positions} or less.`,
    },
  );
}

/** What the Hub has of a model is fetched after this machine's own files were looked at, which is then done once more. */
function canBeLookedAt(model: string): boolean {
  return existsSync(model) && !lacksHubBase(model);
}

function lookAtTokenizer({ folder, chat, model }: NeedOf<'tokenizer'>): void {
  if (!existsSync(folder)) return;
  const path = join(folder, TOKENIZER_FILE);
  // What else there may be instead, whoever opens it says.
  if (!existsSync(path)) {
    throw new CheckpointError(`there is no tokenizer; covered: ${TOKENIZER_FILE}`, {
      where: folder,
      next: 'Make it in Python: AutoTokenizer.from_pretrained(folder).save_pretrained(folder) of the package transformers.',
    });
  }
  if (chat) requireTemplate(folder);
  const count = tokenCount(readJson(path));
  if (count === null || model === null || !canBeLookedAt(model)) return;
  const { vocab_size } = describeModel(model);
  if (count <= vocab_size) return;
  throw new CheckpointError(`the model has ${vocab_size} tokens, its tokenizer ${count}`, {
    where: folder,
    next: 'Name the tokenizer that the model was trained with in policy.tokenizer.',
  });
}

function requireTemplate(folder: string): void {
  if (openChatTemplate(folder, { special: {} }) !== null) return;
  throw new DataError('the model has no chat template', {
    where: folder,
    next: 'Set prompt.chat to false for a model that goes on with bare words, or add chat_template.jinja to its folder.',
  });
}
