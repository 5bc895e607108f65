/**
 * Held-out evaluation: the same prompts with the same random numbers each time, for each sampling mode, per dataset and
 * for all datasets together.
 */
import type { ValidationSettings } from '../config/schema/training.js';
import { DataError } from '../core/errors.js';
import { decodeImage, encodePng, type RgbImage } from '../core/images/image.js';
import { RandomStream } from '../core/random.js';
import { average } from '../core/statistics.js';
import type { Answer } from './policies/policy.js';
import type { RewardSettings } from '../rewards/schema/reward.js';
import { measuredTerms } from '../rewards/score/choice.js';
import type { JudgeItem, Outcome } from '../rewards/score/types.js';
import { heldOutKey, type EpisodeImages } from '../run/episodes.js';
import type { Metrics } from '../run/metrics.js';
import type { ContactSheetRow } from '../run/report/contact_sheet.js';
import { showOutcome, summarizeOutcomes } from './scoring/outcomes.js';
import type { Prompt, PromptSource } from './scoring/task.js';
import { collect, type Collector, episodeLine } from './batch.js';
import { isCutByContext, Stopwatch } from './grpo_metrics.js';

/** An episode of an evaluation: its line, and its images if these are kept. */
export interface HeldOutEpisode {
  readonly line: object;
  readonly images: EpisodeImages | null;
}

export interface HeldOutDeps<P extends Prompt, A extends Answer, H> extends Collector<P, A, H> {
  readonly validation: Pick<ValidationSettings, 'prompts' | 'seed'> & Pick<RewardSettings, 'measure'>;
  /** Sampling modes by the names in metrics and records. Sheets for people show the first one. */
  readonly samplings: Readonly<Record<string, H>>;
  /** Maximum number of actions of an answer. Null if all answers have the same number. */
  readonly longestAnswer: number | null;
  /** The weights to evaluate. */
  readonly weights: 'current' | 'average';
  /** Maximum number of prompts whose answers are sampled together. */
  readonly chunk: number;
  /** Shows some answers of each evaluation to people. Called only on rank 0. */
  readonly show: (
    evaluation: { readonly iteration: number; readonly manner: string },
    rows: readonly ContactSheetRow[],
  ) => Promise<void>;
  /** Records all episodes of an evaluation. Called only on rank 0. */
  readonly record: (iteration: number, episodes: readonly HeldOutEpisode[]) => void;
}

/** Number of shown answers per dataset. */
const SHOWN = 6;

/** Number of answers per dataset that are recorded with their images. */
const RECORDED = 64;

interface Evaluated {
  readonly outcomes: readonly Outcome[];
  /** Whether the context cut each answer. */
  readonly cut: readonly boolean[];
  readonly rows: readonly ContactSheetRow[];
  readonly episodes: readonly HeldOutEpisode[];
}

export class HeldOut<P extends Prompt, A extends Answer, H> {
  constructor(private readonly deps: HeldOutDeps<P, A, H>) {}

  /** The evaluated weights. */
  get weights(): 'current' | 'average' {
    return this.deps.weights;
  }

  /**
   * Returns the metrics `validation/[<set>/]<sampling>/<mean|stderr|unscored>`, the mean of every score part, and
   * `validation/<sampling>/cut_by_context`. The same metrics of each measure follow under `measure/<term>/`.
   * Raises DataError for a measure whose inputs are in none of the held-out prompts.
   */
  async evaluate(iteration: number): Promise<Metrics> {
    const { samplings, task, group, show, record, longestAnswer } = this.deps;
    const metrics: Record<string, number> = {};
    const shown: ContactSheetRow[] = [];
    const episodes: HeldOutEpisode[] = [];
    for (const [at, [name, sampling]] of Object.entries(samplings).entries()) {
      const all: Outcome[] = [];
      const cutAnswers: boolean[] = [];
      for (const set of task.validation) {
        const { outcomes, cut, rows, ...kept } = await this.#evaluateSet(iteration, set, name, sampling);
        Object.assign(metrics, summarizeOutcomes(`validation/${set.name}/${name}`, outcomes));
        all.push(...outcomes);
        cutAnswers.push(...cut);
        if (at === 0) shown.push(...rows);
        episodes.push(...kept.episodes);
      }
      Object.assign(metrics, summarizeOutcomes(`validation/${name}`, all));
      if (longestAnswer !== null) {
        metrics[`validation/${name}/cut_by_context`] = average(cutAnswers.map(Number));
      }
      if (all.length > 0) this.#requireMeasured(all);
    }
    if (group.rank === 0) {
      record(iteration, episodes);
      if (shown.length > 0) await show({ iteration, manner: Object.keys(samplings)[0] }, shown);
    }
    return metrics;
  }

  #requireMeasured(outcomes: readonly Outcome[]): void {
    for (const { name, kind } of measuredTerms(this.deps.validation)) {
      if (outcomes.some(({ measures }) => measures?.[name] !== undefined)) continue;
      throw new DataError(
        `validation.measure '${kind.name}' can score no held-out answer, because the prompts lack the data it compares with`,
        {
          where: 'data.validation',
          next: 'Evaluate on data that has it, or choose another measure. `editrl config schema` lists the data of each term.',
        },
      );
    }
  }

  async dispose(): Promise<void> {
    const { policy, scorer, task } = this.deps;
    await policy.dispose();
    await scorer.close();
    await task.dispose();
  }

  async #evaluateSet(iteration: number, set: PromptSource<P>, name: string, sampling: H): Promise<Evaluated> {
    const { validation, weights, chunk, group, longestAnswer } = this.deps;
    const count = Math.min(set.length, validation.prompts);
    const prompts = await Promise.all(Array.from({ length: count }, (_, i) => set.prompt(i)));
    const { start, answers, rendered, outcomes } = await collect(
      this.deps,
      {
        prompts,
        answersPerPrompt: 1,
        how: sampling,
        weights,
        chunk,
        random: (p) => new RandomStream(validation.seed, 'validation', set.name, p),
        key: (prompt) => heldOutKey({ iteration, set: set.name, sampling: name, prompt }),
      },
      new Stopwatch(),
    );
    const shown = rendered.slice(0, Math.max(0, SHOWN - start));
    const rows = await Promise.all(
      shown.map(async ([{ item, caption, thought }], i): Promise<ContactSheetRow> => ({
        instruction: caption,
        source: item.source ?? (await imageOf(prompts[start + i])),
        edit: item.edited,
        truth: item.truth,
        score: showOutcome(outcomes[i][0]),
        words:
          item.answer === undefined
            ? null
            : { thought: thought ?? null, answer: item.answer, expected: item.expected ?? null },
      })),
    );
    const cut = answers.flat().map((answer) => longestAnswer !== null && isCutByContext(answer, longestAnswer));
    const all = await group.allGather({ outcomes: outcomes.flat(), cut, rows });
    const episodes = await Promise.all(
      rendered.map(async ([{ record, item }], i): Promise<HeldOutEpisode> => ({
        line: episodeLine(prompts[start + i], answers[i][0], { key: item.key, record }, outcomes[i][0]),
        images: start + i < RECORDED ? await imagesOf(prompts[start + i], item) : null,
      })),
    );
    const gathered = await group.gather(episodes);
    return {
      outcomes: all.flatMap((one) => one.outcomes),
      cut: all.flatMap((one) => one.cut),
      rows: all.flatMap((one) => one.rows),
      episodes: gathered?.flat() ?? [],
    };
  }
}

/** The prompt's image, if it has one that rewards do not read. */
async function imageOf({ id, sourcePng }: Prompt): Promise<RgbImage | null> {
  return sourcePng === null ? null : decodeImage(await sourcePng(), id);
}

/** The images of an episode as PNG files. Null if its reward reads only words. */
async function imagesOf({ sourcePng }: Prompt, { source, edited, truth }: JudgeItem): Promise<EpisodeImages | null> {
  if (source === null && edited === null) return null;
  return {
    source: sourcePng === null ? null : await sourcePng(),
    edited: edited === null ? null : await encodePng(edited),
    truth: truth === null ? null : await encodePng(truth),
  };
}
