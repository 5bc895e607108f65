/**
 * The recipe `edit_response`: a vision-language model describes an edit, the hidden states of exactly what it wrote condition a frozen model
 * that edits the picture, and the picture is judged.
 */
import { join } from 'node:path';
import { z } from 'zod';
import { measuredReward, wordsReward } from '../../rewards/schema/reward.js';
import { measured } from '../../rewards/score/settings.js';
import { wordsAlgorithm } from '../../schema/algorithm.js';
import { picturedData } from '../../schema/seen_data.js';
import { editorEnvironment, imagesServer, type PictureServer } from '../../schema/editor.js';
import { idleWhere } from '../../schema/mark.js';
import { taskField, trainedFields } from '../../schema/run.js';
import { rollout, validation } from '../../schema/training.js';
import { frozenBytes } from '../memory.js';
import { policyRules } from '../policy_rules.js';
import { guidanceNeeds, type Need, type ShapeOf, type TrainedRecipe } from '../recipe.js';
import { rewardRules } from '../reward_rules.js';
import { problem, type Problem, type Reader } from '../rules.js';
import {
  ownWords,
  picturedNeeds,
  seeingPolicy,
  seeingPolicyNeeds,
  seeingPrompt,
  startMissing,
  turnsNeedChat,
} from '../seeing_words.js';
import { seeingNeeds } from '../token_policy.js';
import { sharedRules, tokenGroupRules, wholeBatches, supervised } from '../training_rules.js';

const schema = z.strictObject({
  ...trainedFields,
  ...taskField('edit_response'),
  validation: measured(validation),
  algorithm: wordsAlgorithm,
  rollout: idleWhere(supervised, rollout),
  policy: seeingPolicy,
  prompt: seeingPrompt,
  data: picturedData,
  environment: idleWhere(
    supervised,
    editorEnvironment
      .nullable()
      .default(null)
      .meta({
        ...editorEnvironment.meta(),
        description: `${editorEnvironment.description} null: none, and a supervised run reports losses alone.`,
      }),
  ),
  reward: idleWhere(supervised, wordsReward),
});
export type EditResponseSettings = z.output<typeof schema>;

export const editResponse: TrainedRecipe<EditResponseSettings> = {
  name: 'edit_response',
  trainer: 'this program',
  schema,
  rules: [
    ...tokenGroupRules,
    wholeBatches,
    ...sharedRules,
    ...policyRules,
    ...rewardRules,
    turnsNeedChat,
    ownWords,
    drawing,
  ],
  models: ['policy.tokenizer', 'environment.parts.vae', 'environment.model', 'policy.model'],
  tokenizers: ['policy.tokenizer'],
  engines: ['policy.engine', 'environment.engine'],
  // Without pictures there is nothing to score.
  reward: (settings) => (settings.environment === null ? null : measuredReward(settings)),
  ...seeingNeeds,
  memory: (settings, shapeOf) => {
    const trained = seeingNeeds.memory(settings, shapeOf);
    return trained === null ? null : trained + drawingBytes(settings, shapeOf);
  },
  imageMemory: drawingBytes,
  images: pictureServer,
  tinyData: ({ data: { dir, tiny } }) => (tiny === null ? null : join(dir, tiny.folder)),
  needs: (settings, shapeOf) => [
    ...picturedNeeds(settings),
    ...seeingPolicyNeeds(settings),
    ...drawingNeeds(settings, shapeOf),
  ],
  missing: startMissing,
};

/** Rewards need pictures that differ by what was written. */
function drawing(read: Reader): Problem[] {
  if (read('environment.read_by') === 'start' && read('policy.model') === null) {
    return problem(
      'environment.read_by',
      "found 'start' with policy.model null, where training starts from random weights, which nothing was taught by; allowed: 'policy', or a model to start from",
    );
  }
  if (read('algorithm.type') === 'sft') return [];
  const allowed =
    "{type: 'model', model: …}, a model that edits by the hidden states of policy.model, {type: 'render_server', …}, a server that does, or {type: 'images_api_text_prompt', …}, one that edits by its words";
  if (read('environment') === null) {
    return problem('environment', `found null with algorithm.type 'grpo'; allowed: ${allowed}`);
  }
  if (read('environment.told') !== 'instruction') return [];
  return problem(
    'environment.told',
    "found 'instruction' with algorithm.type 'grpo', where every answer to a prompt gives the same picture; allowed: 'response', or algorithm.type 'sft'",
  );
}

/** Of the model that draws and of its autoencoder, where they are here. */
function drawingBytes({ environment }: EditResponseSettings, shapeOf: ShapeOf): number {
  if (environment?.type !== 'model') return 0;
  const { model, parts } = environment;
  return frozenBytes(model, shapeOf) + frozenBytes(parts.vae, shapeOf);
}

function pictureServer({ environment, policy }: EditResponseSettings): PictureServer | null {
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

function drawingNeeds({ environment }: EditResponseSettings, shapeOf: ShapeOf): Need[] {
  if (environment?.type !== 'model') return [];
  const { model, parts, guidance_scale: guidance } = environment;
  return [
    ...guidanceNeeds('environment', model, guidance, shapeOf),
    ...(typeof parts.vae === 'string' ? [{ kind: 'flow_part', part: 'vae', folder: parts.vae } as const] : []),
    ...(typeof model === 'string' ? [{ kind: 'frozen_flow', folder: model, guidance } as const] : []),
  ];
}
