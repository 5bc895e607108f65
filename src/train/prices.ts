/** A list of what a training server charges for its models. */
import { readFileSync } from 'node:fs';
import { z } from 'zod';
import { ConfigError } from '../core/errors.js';
import type { Price } from '../run/spending.js';

const amount = z.number().min(0);
const list = z.strictObject({
  currency: z.string().min(1),
  models: z.record(z.string(), z.strictObject({ prefill: amount, sample: amount, train: amount })),
});

const FORM =
  '{"currency": "USD", "models": {"BASE_MODEL": {"prefill": 0.1, "sample": 0.4, "train": 0.4}}}, for a million tokens';

/** The price of a model. Raises ConfigError for a file that cannot be read or is no such list, and for a model that is not in it. */
export function readPrice(file: string, model: string): Price {
  const fail = (found: string, next: string, cause?: unknown): ConfigError =>
    new ConfigError(`policy.trainer.prices: ${found}`, { where: file, next, cause });
  let text: string;
  try {
    text = readFileSync(file, 'utf8');
  } catch (cause) {
    throw fail('cannot be read', 'Name a file that is there, or null.', cause);
  }
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (cause) {
    throw fail(`found no JSON: ${(cause as Error).message}`, `Write it as ${FORM}.`, cause);
  }
  const read = list.safeParse(value);
  if (!read.success) {
    const [{ path, message }] = read.error.issues;
    throw fail(`${path.map(String).join('.') || 'the file'}: ${message}`, `Write it as ${FORM}.`, read.error);
  }
  const { currency, models } = read.data;
  if (!Object.hasOwn(models, model)) {
    const named = Object.keys(models).join(', ');
    throw fail(
      `found no price of ${model}; there are prices of ${named}`,
      'Add it under the name in policy.trainer.base_model.',
    );
  }
  const { prefill, sample, train } = models[model];
  return { currency, perMillion: { prefill, sampled: sample, trained: train } };
}
