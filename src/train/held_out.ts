/** Held-out evaluation: always the same prompts with the same random numbers, sampled and greedy, per dataset and together. */
import { RandomStream } from '../core/random.js';
import type { ImageEditSettings } from '../config/settings.js';
import { shareOf } from '../group/peers.js';
import type { TokenAnswer } from '../policies/tokens/batch.js';
import type { Sampler } from '../policies/tokens/rollout.js';
import type { Metrics } from '../run/metrics.js';
import type { ContactSheetRow } from '../run/report/contact_sheet.js';
import type { Outcome } from '../rewards/types.js';
import type { EditPrompt, ImageEditTask, NamedSource, RenderedAnswer } from '../recipes/image_edit_tokens/task.js';
import { average, standardError } from './advantages.js';
import { BegunScoring } from '../scoring/begun_scoring.js';
import { episodeLine } from './episode_records.js';
import type { ProcessGroup } from '../group/process_group.js';
import type { Scorer } from '../scoring/scorer.js';

type Manner = 'sampled' | 'greedy';

/** Prompts whose answers decode together, at most. */
const PROMPTS_AT_ONCE = 128;

export interface HeldOutDeps {
  readonly settings: ImageEditSettings;
  readonly task: ImageEditTask;
  readonly sampler: Sampler;
  readonly scorer: Scorer;
  /** Each rank answers its share of the prompts. */
  readonly group: ProcessGroup;
  /** Called on rank 0 alone. Given some of the sampled answers of each evaluation, for people to look at. */
  readonly show: (iteration: number, rows: readonly ContactSheetRow[]) => Promise<void>;
  /** Called on rank 0 alone, with every episode of an evaluation as it is recorded. */
  readonly record?: (iteration: number, episodes: readonly object[]) => void;
}

/** An answer with what it answers and what became of it. */
interface HeldOutAnswer extends RenderedAnswer {
  readonly sample: string;
  readonly answer: TokenAnswer;
}

/** How many answers of each dataset are shown. */
const SHOWN = 6;

export class HeldOut {
  constructor(private readonly deps: HeldOutDeps) {}

  /** Metrics `validation/[<set>/]<sampled|greedy>/<mean|stderr|unscored>` and, sampled, the mean of every score part. */
  async evaluate(iteration: number): Promise<Metrics> {
    const { validation } = this.deps.settings;
    const metrics: Record<string, number> = {};
    const shown: ContactSheetRow[] = [];
    const episodes: object[] = [];
    const manners: readonly Manner[] = validation.greedy ? ['sampled', 'greedy'] : ['sampled'];
    for (const manner of manners) {
      const all: Outcome[] = [];
      for (const set of this.deps.task.validation) {
        const { outcomes, rows, lines } = await this.#evaluateSet(iteration, set, manner);
        Object.assign(metrics, summarise(`validation/${set.name}/${manner}`, outcomes));
        all.push(...outcomes);
        if (manner === 'sampled') shown.push(...rows);
        episodes.push(...lines);
      }
      Object.assign(metrics, summarise(`validation/${manner}`, all));
    }
    if (this.deps.group.rank === 0) {
      this.deps.record?.(iteration, episodes);
      await this.deps.show(iteration, shown);
    }
    return metrics;
  }

  async dispose(): Promise<void> {
    await this.deps.sampler.dispose();
    await this.deps.scorer.close();
  }

  async #evaluateSet(
    iteration: number,
    set: NamedSource,
    manner: Manner,
  ): Promise<{ outcomes: Outcome[]; rows: ContactSheetRow[]; lines: object[] }> {
    const { task, settings, scorer, group } = this.deps;
    const share = shareOf(Math.min(set.source.length, settings.validation.prompts), group);
    const chunk = promptsAtOnce(settings.rollout);
    const scoring = new BegunScoring(scorer);
    const rendered: HeldOutAnswer[] = [];
    try {
      for (let start = share.start; start < share.end; start += chunk) {
        const length = Math.min(chunk, share.end - start);
        const part = Array.from({ length }, (_, i) => task.prompt(set.source.read(start + i)));
        const answers = await this.#render(iteration, set.name, manner, part, start);
        rendered.push(...answers);
        scoring.begin(answers.map(({ item }) => item));
      }
    } catch (error) {
      throw await scoring.firstError(error);
    }
    const outcomes = await scorer.settle(
      rendered.map(({ item }) => item),
      await scoring.outcomes(),
    );
    const rows = rendered.slice(0, Math.max(0, SHOWN - share.start)).map(({ item, parsed }, i): ContactSheetRow => {
      return {
        instruction: task.thinks ? withThought(item.instruction, parsed.text) : item.instruction,
        source: item.source,
        edit: item.edited,
        truth: item.truth,
        score: showScore(outcomes[i]),
      };
    });
    const all = await group.allGather({ outcomes, rows });
    const lines = await group.gather(
      rendered.map(({ sample, answer, parsed, item }, i) => episodeLine(sample, answer, parsed, item, outcomes[i])),
    );
    return {
      outcomes: all.flatMap((one) => one.outcomes),
      rows: all.flatMap((one) => one.rows),
      lines: lines?.flat() ?? [],
    };
  }

  async #render(
    iteration: number,
    set: string,
    manner: Manner,
    prompts: readonly EditPrompt[],
    offset: number,
  ): Promise<HeldOutAnswer[]> {
    const { task, settings, sampler } = this.deps;
    const { temperature, seed } = settings.validation;
    const answers = await sampler.sample(
      prompts.map(({ tokens }) => tokens),
      {
        answersPerPrompt: 1,
        maxTokens: settings.rollout.max_response_tokens,
        temperature: manner === 'greedy' ? 0 : temperature,
        topP: 1,
        topK: -1,
        logProbTemperature: 1,
      },
      (p) => new RandomStream(seed, 'validation', set, offset + p),
    );
    const key = (p: number): string => `validation/${iteration}/${set}/${manner}/${offset + p}`;
    const rendered = prompts.map(async (prompt, p): Promise<HeldOutAnswer> => {
      const [one] = await task.render(prompt, answers[p], [key(p)]);
      return { ...one, sample: prompt.sample.id, answer: answers[p][0] };
    });
    return Promise.all(rendered);
  }
}

/** As many answers as a chunk of a rollout has, since those fit into memory. Answers do not depend on it: each has its own random numbers. */
function promptsAtOnce({ chunk_groups, generations_per_sample }: ImageEditSettings['rollout']): number {
  return chunk_groups === null ? PROMPTS_AT_ONCE : Math.min(PROMPTS_AT_ONCE, chunk_groups * generations_per_sample);
}

/** The reward of an outcome on its native scale; null where there is none. */
export function rewardOf(outcome: Outcome): number | null {
  switch (outcome.kind) {
    case 'scored':
      return outcome.value;
    case 'zero_by_rule':
      return 0;
    case 'unscored':
      return null;
  }
}

function summarise(name: string, outcomes: readonly Outcome[]): Record<string, number> {
  const rewards = outcomes.map(rewardOf).filter((reward) => reward !== null);
  const metrics: Record<string, number> = {
    [`${name}/mean`]: average(rewards),
    [`${name}/stderr`]: standardError(rewards),
    [`${name}/unscored`]: outcomes.length - rewards.length,
  };
  for (const [part, values] of scoreParts(outcomes)) metrics[`${name}/${part}`] = average(values);
  return metrics;
}

/** Values of each score part over the outcomes that have it. */
export function scoreParts(outcomes: readonly Outcome[]): Map<string, number[]> {
  const out = new Map<string, number[]>();
  for (const { parts } of outcomes) {
    for (const [part, value] of Object.entries(parts)) {
      const values = out.get(part);
      if (values === undefined) out.set(part, [value]);
      else values.push(value);
    }
  }
  return out;
}

function showScore(outcome: Outcome): string {
  switch (outcome.kind) {
    case 'scored':
      return outcome.value.toFixed(1);
    case 'zero_by_rule':
      return `0 (${outcome.reason})`;
    case 'unscored':
      return outcome.reason;
  }
}

/** The instruction and, in brackets, what the policy wrote before the image; the tokens that bound it are not for readers. */
export function withThought(instruction: string, text: string): string {
  const words = text.replaceAll(/<\|[^|]*\|>/g, '').trim();
  return words === '' ? instruction : `${instruction} (${words})`;
}
