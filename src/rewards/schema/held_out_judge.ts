/** A second judge that the policy is not trained on. */
import { z } from 'zod';
import { operation, positive, positiveInteger, section } from '../../schema/mark.js';
import { modelAliasSchema } from '../judge/endpoints.js';
import { termNames } from '../terms/table.js';

export const heldOutJudge = section(
  'A second judge that scores some of the training episodes by the same reward and never enters it; the gap to the training judge is a metric (hack/judge_gap). The run goes on while it is down. null means none.',
  z
    .strictObject({
      endpoint: operation(
        'Base URL of its OpenAI-compatible server, with or without /v1, or a list of such URLs of equal judges.',
        z.union([z.string().min(1), z.array(z.string().min(1)).min(1)]),
      ),
      model: operation('The model, as its server names it; another one than reward.model.', z.string().min(1)),
      model_alias: operation('Other names by which it may answer, as reward.model_alias says.', modelAliasSchema, {
        allowed: "true, false, or a list of names such as ['qwen2.5-vl-7b']",
      }),
      mode: operation(
        'What it is asked: a reward.mode that asks a judge; null means the training reward itself.',
        z.enum(termNames).nullable().default(null),
      ),
      every_n_iterations: operation('Ask it every this many iterations.', positiveInteger.default(5)),
      fraction: operation(
        "Share of such an iteration's episodes that it scores, spread evenly over the prompts.",
        z.number().gt(0).max(1).default(0.25),
      ),
      timeout_s: operation('What is not answered by then stays without its score, in seconds.', positive.default(120)),
    })
    .nullable()
    .default(null),
);
