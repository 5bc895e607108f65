/**
 * Alignment and quality: a general VLM (GPT-4o, or any other behind an OpenAI-compatible address) grades how well an image follows the
 * prompt and how good it is, with two integers from 0 to 10. The value is their weighted mean.
 */
import { z } from 'zod';
import { operation, result } from '../../core/schema/mark.js';
import { type JudgeQuery } from '../judge/judge.js';
import type { ModelAlias } from '../judge/completion.js';
import type { JudgeImage } from '../judge/images.js';
import { modelAliasSchema } from '../judge/endpoints.js';
import { maxScore, plainScores } from '../judge/parse.js';
import { alignPrompts, alignReplyTokens, twoScoreQuery, withInstruction } from '../judge/prompts.js';
import type { Term } from './term.js';
import { termKind } from './term.js';
import type { JudgeItem, Outcome, ScoreOptions } from '../score/types.js';

const defaultKeyVariable = 'OPENAI_API_KEY';

/** `images`: the given images, if any, then the image to grade. */
function alignQuery(item: JudgeItem, images: readonly JudgeImage[]): JudgeQuery {
  const text = images.length > 2 ? alignPrompts.joined : images.length === 1 ? alignPrompts.made : alignPrompts.edited;
  return twoScoreQuery(`${item.key}/align_quality`, withInstruction(text, item.instruction), images, alignReplyTokens);
}

interface AlignSettings {
  readonly model: string | null;
  readonly endpoint: string | null;
  readonly model_alias: ModelAlias;
  readonly api_key_env: string;
}

function conflictOf(settings: AlignSettings): { readonly field: string; readonly message: string } | null {
  const { model, endpoint, model_alias: alias, api_key_env: keyVariable } = settings;
  if (endpoint !== null && model === null) {
    return {
      field: 'model',
      message: "an endpoint of its own needs its model, such as 'Qwen/Qwen2.5-VL-72B-Instruct'",
    };
  }
  if (endpoint === null && alias !== false) {
    const message = 'this needs endpoint, which is not set; for the judge of all terms, use reward.model_alias';
    return { field: 'model_alias', message };
  }
  if (endpoint === null && keyVariable !== defaultKeyVariable) {
    const message = `'${keyVariable}' needs endpoint, which is not set: set it, or leave the variable out`;
    return { field: 'api_key_env', message };
  }
  return null;
}

export const alignQuality = termKind({
  name: 'align_quality',
  description:
    'How well the image follows the prompt and how good it is: the weighted mean of two grades from 0 to 10, by the judge or another OpenAI-compatible model.',
  fields: {
    model: result(
      'The judge model, such as Qwen/Qwen2.5-VL-72B-Instruct. null means reward.model.',
      z.string().min(1).nullable().default(null),
    ),
    endpoint: operation(
      'Address of a server for this term alone, such as https://api.openai.com/v1; needs model. null means reward.endpoint. OpenAI and Azure get the sampling fields that they know, other servers get all of them; reward.leave_out removes fields.',
      z.string().min(1).nullable().default(null),
    ),
    model_alias: operation(
      'Other names that the model at endpoint may report, as in reward.model_alias.',
      modelAliasSchema,
      { allowed: "true, false, or a list of names such as ['my-deployment']" },
    ),
    api_key_env: operation(
      'Name of the environment variable with the key for endpoint.',
      z
        .string()
        .regex(/^[A-Za-z_][A-Za-z0-9_]*$/, 'the name of an environment variable, not a key')
        .default(defaultKeyVariable),
    ),
  },
  most: maxScore,
  reads: 'image',
  needs: { judge: true, truth: false, source: false },
  judgesSeveral: true,
  replyTokens: alignReplyTokens,
  ownJudge: ({ endpoint }) => endpoint !== null,
  conflict: conflictOf,
  async create(settings, services): Promise<Term> {
    const { model, endpoint } = settings;
    const [{ isShowable, judgeImage, whyUnshowable }, { unscoredOutcome }] = await Promise.all([
      import('../judge/images.js'),
      import('../score/judged_item.js'),
    ]);
    const own =
      endpoint === null || model === null
        ? null
        : services.ownJudge({
            term: 'align_quality',
            endpoint,
            model,
            alias: settings.model_alias,
            keyVariable: settings.api_key_env,
            replyTokens: alignReplyTokens,
          });
    const judge = own ?? services.judge(model ?? undefined);

    async function score(item: JudgeItem, signal?: AbortSignal, options?: ScoreOptions): Promise<Outcome> {
      if (item.edited === null || !isShowable(item.edited)) {
        return { kind: 'zero_by_rule', reason: 'undecodable', parts: {} };
      }
      const given = item.source === null ? [] : [item.source, ...(item.beside ?? [])];
      const shape = given.map(whyUnshowable).find((why) => why !== null);
      if (shape !== undefined) {
        return { kind: 'unscored', reason: 'bad_request', detail: `${item.key}, source image: ${shape}`, parts: {} };
      }
      const sources = given.map((image) => judgeImage(image, `${item.key}, source image`));
      const shown = [...sources, judgeImage(item.edited, `${item.key}, edited image`)];
      const judgement = await judge.ask(alignQuery(item, shown), signal, options);
      const unscored = unscoredOutcome([judgement], {});
      if (unscored !== null) return unscored;
      const [alignment, quality] = plainScores(judgement.scores);
      const value = 0.5 * alignment + 0.5 * quality;
      const parts = {
        'align_quality/alignment': alignment,
        'align_quality/quality': quality,
        'align_quality/overall': value,
      };
      return { kind: 'scored', value, normalised: value / maxScore, parts };
    }

    return {
      name: 'align_quality',
      score,
      ...(own?.untilReady === undefined ? {} : { untilReady: own.untilReady }),
      ...(own?.canary === undefined ? {} : { canary: own.canary }),
      close: async () => own?.close(),
    };
  },
});
