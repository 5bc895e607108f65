/** Rules of recipes whose policy answers in text. */
import type { z } from 'zod';
import type { ModelReference } from '../../../config/schema/model.js';
import type { TrainedSettings } from '../../../config/schema/run.js';
import type { imageEditData } from '../../../config/schema/seen_data.js';
import type { PromptSettings, TextPolicySettings } from '../../../config/schema/token_policy.js';
import { startMissing, type Part } from '../../recipe.js';
import { problem, type PartialSettings, type Problem } from '../../../config/schema/rules.js';
import { servedTrainerRules } from '../tokens/rules.js';
import { decoderPart, seeingPart, type VisionRecipeSettings, type TokenRecipeSettings } from '../tokens/settings.js';

/** Prompts without a chat template cannot have a system message, examples or template variables. */
export function turnsNeedChat({ prompt }: PartialSettings<{ prompt: PromptSettings }>): readonly Problem[] {
  if (prompt?.chat !== false) return [];
  return (['system', 'examples', 'variables'] as const).flatMap((field) => {
    const found = prompt[field] ?? '';
    if (Object.keys(Object(found) as object).length === 0) return [];
    return problem(`prompt.${field}`, 'found with prompt.chat false; allowed: only with prompt.chat true');
  });
}

interface OwnWordsSettings extends Pick<TrainedSettings, 'data'> {
  readonly policy: Pick<TextPolicySettings, 'init' | 'tokenizer'>;
}

/** A model with random weights needs a vocabulary: a tokenizer, or the tiny world's. */
export function ownWords({ policy, data }: PartialSettings<OwnWordsSettings>): readonly Problem[] {
  if (policy?.init === null || policy?.tokenizer !== null || data?.tiny !== null) return [];
  return problem(
    'policy.tokenizer',
    'found null with policy.init; allowed: a model whose tokenizer is used. Only the tiny world (data.tiny) has its own words',
  );
}

type InWords<S extends TokenRecipeSettings> = S & {
  readonly policy: { readonly tokenizer: ModelReference | null };
  readonly prompt: PromptSettings;
};

type TextRecipeSettings = InWords<TokenRecipeSettings> & { readonly policy: TextPolicySettings };

/** A policy that answers in text. A training server that trains it has the model. */
export const textPart: Part<TextRecipeSettings> = {
  ...decoderPart,
  rules: [...decoderPart.rules, ...servedTrainerRules],
  missing: (settings) => (settings.policy.trainer.type === 'onnx' ? startMissing(settings) : []),
};

/** A vision-language policy that answers in text. */
export const seeingWordsPart: Part<InWords<VisionRecipeSettings>> = {
  ...seeingPart,
  missing: (settings) => (settings.policy.trainer.type === 'onnx' ? startMissing(settings) : []),
};

/** The columns that every row of a dataset of edits must have. */
export function editColumns({ columns }: Pick<z.output<typeof imageEditData>, 'columns'>): string[] {
  return [columns.source, columns.instruction];
}
