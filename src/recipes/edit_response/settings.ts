/**
 * The recipe `edit_response`: a vision-language model writes a response about an edit. The hidden states of its exact
 * tokens condition a frozen image editor, and the edited image is judged.
 */
import { z } from 'zod';
import { measuredReward, wordsReward } from '../../rewards/schema/reward.js';
import { withMeasure } from '../../rewards/score/settings.js';
import { wordsAlgorithm } from '../../config/schema/algorithm.js';
import { imageEditData } from '../../config/schema/seen_data.js';
import { editorEnvironment, imagesServer, type ImageServer } from '../../config/schema/editor.js';
import { idleWhere } from '../../core/schema/mark.js';
import { taskField, trainedFields } from '../../config/schema/run.js';
import { seeingPolicy, seeingPrompt } from '../../config/schema/token_policy.js';
import { rollout, validation } from '../../config/schema/training.js';
import { frozenFlowPart } from '../shared/flow/settings.js';
import { FLOAT, flowDrawn, type DataSizes, type ShapeOf } from '../shared/memory.js';
import { preset } from '../recipe.js';
import { rewardRules } from '../shared/rules/reward.js';
import { problem, problemUnless, type PartialSettings, type Problem } from '../../config/schema/rules.js';
import { sharedRules, tokenGroupRules, wholeBatches, isSupervised } from '../shared/rules/training.js';
import { ownWords, seeingWordsPart, turnsNeedChat } from '../shared/words/settings.js';

const schema = z.strictObject({
  ...trainedFields,
  ...taskField('edit_response'),
  validation: withMeasure(validation),
  algorithm: wordsAlgorithm,
  rollout: idleWhere(isSupervised, rollout),
  policy: seeingPolicy,
  prompt: seeingPrompt,
  data: imageEditData,
  environment: idleWhere(
    isSupervised,
    editorEnvironment
      .nullable()
      .default(null)
      .meta({
        ...editorEnvironment.meta(),
        description: `${editorEnvironment.description} With null, a supervised run reports only losses.`,
      }),
  ),
  reward: idleWhere(isSupervised, wordsReward),
});
export type EditResponseSettings = z.output<typeof schema>;

export const editResponse = preset<EditResponseSettings>({
  name: 'edit_response',
  schema,
  pipeline: 'image-text-to-text',
  usedAt: { key: 'policy.model', of: 'edit_response' },
  // Without images, there is nothing to score.
  reward: (settings) => (settings.environment === null ? null : measuredReward(settings)),
  images: imageServer,
  parts: [
    { rules: [...tokenGroupRules, wholeBatches, ...sharedRules] },
    seeingWordsPart,
    { rules: [trainedHere, ...rewardRules, turnsNeedChat, ownWords, drawing] },
    frozenFlowPart(['vae']),
    { imageMemory: drawnBytes },
  ],
});

/**
 * Bytes for generating the edit with the most tokens. The edited image has the size of the first source image, and all
 * source images count.
 */
function drawnBytes({ environment, data }: EditResponseSettings, shapeOf: ShapeOf, sizes?: DataSizes): number {
  if (environment?.type !== 'model' || sizes === undefined) return 0;
  const shape = shapeOf(environment.model);
  if (shape === null || !('kind' in shape) || shape.kind !== 'flow') return 0;
  const { patch, mediaBeside = false } = shape;
  const { max_pixels: most, pictures_at_once: together } = environment;
  const { train, validation, columns } = data;
  const lists = [...train, ...validation];
  const rows = lists.flatMap(({ path, media }) => sizes.shown({ path, media, column: columns.source }));
  const tokens = rows.map((row) => {
    const each = row.map((size) =>
      Math.min(
        (most ?? Infinity) / patch ** 2,
        size === null ? ASSUMED_TOKENS : (size.width * size.height) / patch ** 2,
      ),
    );
    const shown = mediaBeside ? 0 : each.reduce((sum, one) => sum + one, 0);
    return each[0] + shown;
  });
  return FLOAT * flowDrawn(shape, together, Math.max(0, ...tokens));
}

/** Tokens of an image of unknown size: 512 x 512 pixels with tokens of 16 x 16. */
const ASSUMED_TOKENS = 32 ** 2;

/** A training server returns only tokens and log-probabilities, not hidden states. */
function trainedHere({ policy }: PartialSettings<EditResponseSettings>): readonly Problem[] {
  return problemUnless(
    policy?.trainer?.type !== 'tinker',
    'policy.trainer.type',
    "found 'tinker', whose servers return no hidden states, which the environment draws from; allowed: 'onnx'",
  );
}

/** Learning from rewards requires images that depend on the response. */
function drawing({ algorithm, environment, policy }: PartialSettings<EditResponseSettings>): Problem[] {
  if (environment?.read_by === 'start' && policy?.model === null) {
    return problem(
      'environment.read_by',
      "found 'start' with policy.model null, whose random initial weights say nothing about the edit; allowed: 'policy', or with policy.model",
    );
  }
  if (algorithm?.type === 'sft') return [];
  const allowed =
    "{type: 'model', model: …}, a model that edits from the hidden states of policy.model, {type: 'render_server', …}, a server that does so, or {type: 'images_api_text_prompt', …}, a server that edits from words";
  if (environment === null) {
    return problem('environment', `found null with algorithm.type 'grpo'; allowed: ${allowed}`);
  }
  if (environment?.told !== 'instruction') return [];
  return problem(
    'environment.told',
    "found 'instruction' with algorithm.type 'grpo', where every answer to a prompt gives the same image; allowed: 'response', or algorithm.type 'sft'",
  );
}

function imageServer({ environment, policy }: EditResponseSettings): ImageServer | null {
  switch (environment?.type) {
    case 'images_api_text_prompt':
      return { kind: 'images_api', settings: imagesServer(environment) };
    case 'render_server':
      return { kind: 'render_server', settings: environment, width: policy.init?.hidden_size ?? null };
    case 'model':
    case undefined:
      return null;
  }
}
