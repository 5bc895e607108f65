/** Supervised fine-tuning of a token policy on labelled edits: the warm start of reinforcement learning. */
import { InternalError } from '../core/errors.js';
import type { ImageEditSettings, SftSettings } from '../config/settings.js';
import type { EditSample } from '../data/types.js';
import type { LearningGroup, TokenStatistics } from '../policies/tokens/learner.js';
import { Learner } from '../policies/tokens/learner.js';
import type { CheckpointFiles } from '../models/files.js';
import type { Metrics } from '../run/metrics.js';
import type { ImageEditTask } from '../recipes/image_edit_tokens/task.js';
import { sessionOptions } from '../engines/onnx/session_options.js';
import type { HeldOut } from './held_out.js';
import type { Training } from './loop.js';
import type { PolicyState } from '../engines/onnx/trained_weights.js';
import { soloGroup, type ProcessGroup } from '../group/process_group.js';

export class SupervisedTraining implements Training {
  readonly kind = 'sft';
  readonly #learner: Learner;
  readonly #sft: SftSettings['sft'];

  constructor(
    private readonly settings: ImageEditSettings,
    private readonly task: ImageEditTask,
    private readonly policy: PolicyState,
    /** Null where no judge is configured: then only the held-out loss is measured. */
    private readonly heldOut: HeldOut | null,
    group: ProcessGroup = soloGroup(),
  ) {
    if (settings.algorithm.type !== 'sft') throw new InternalError('supervised training of a GRPO config');
    this.#sft = settings.algorithm.sft;
    this.#learner = new Learner(policy.model, {
      temperature: 1,
      separateVocabularies: false,
      microBatch: settings.optimizer.per_device_batch_size,
      gradientCheckpointing: settings.optimizer.gradient_checkpointing,
      session: sessionOptions(settings.policy.engine),
      peers: group,
    });
  }

  async step(iteration: number): Promise<Metrics> {
    const start = performance.now();
    const size = this.#sft.batch_size;
    const samples = Array.from({ length: size }, (_, i) => this.task.trainingSample((iteration - 1) * size + i));
    const groups = this.#groups(samples, iteration > this.#sft.changed_token_weight_after_steps);
    const tokens = groups.reduce((sum, group) => sum + group.answers[0].ids.length, 0);
    const { gradients, loss } = await this.#learner.gradient(groups, { kind: 'sft' });
    const update = this.policy.step(gradients);
    const seconds = (performance.now() - start) / 1000;
    return {
      'policy/loss': loss,
      'policy/grad_norm': update.gradNorm,
      'policy/learning_rate': update.learningRate,
      'time/total': seconds,
      'tokens/s': tokens / seconds,
    };
  }

  async evaluate(iteration: number, last: boolean): Promise<Metrics> {
    const start = performance.now();
    const { statistics, groups } = await this.#heldOutStatistics();
    let sum = 0;
    let weight = 0;
    groups.forEach((group, i) => {
      statistics[i][0].logProbs.forEach((logProb, t) => {
        sum -= logProb * group.targets[0].weights[t];
        weight += group.targets[0].weights[t];
      });
    });
    const loss = sum / weight;
    if (iteration > 0) this.policy.noteHeldOutLoss(iteration, loss, this.#sft.min_delta);
    const judged = this.heldOut !== null && (iteration === 0 || last) ? await this.heldOut.evaluate(iteration) : {};
    return { 'validation/loss': loss, ...judged, 'time/validation': (performance.now() - start) / 1000 };
  }

  shouldStop(): string | null {
    const flat = this.policy.flatValidations;
    if (this.#sft.patience === null || flat < this.#sft.patience) return null;
    return `the held-out loss has been flat for ${flat} validations`;
  }

  files(iteration: number): CheckpointFiles {
    return this.policy.files(iteration);
  }

  checksum(): string {
    return this.policy.checksum();
  }

  async dispose(): Promise<void> {
    await Promise.all([this.#learner.dispose(), this.heldOut?.dispose(), this.task.dispose()]);
  }

  async #heldOutStatistics(): Promise<{ statistics: TokenStatistics[][]; groups: LearningGroup[] }> {
    const samples = this.task.validation.flatMap(({ source }) =>
      Array.from({ length: Math.min(source.length, this.settings.validation.prompts) }, (_, i) => source.read(i)),
    );
    const groups = this.#groups(samples, true);
    return { groups, statistics: await this.#learner.statistics(groups, this.policy.model.weights) };
  }

  /** Weights sum to 1 over the batch, so that the loss is a weighted mean over its tokens. */
  #groups(samples: readonly EditSample[], stressChanges: boolean): LearningGroup[] {
    const groups = samples.map((sample) => {
      const ids = this.task.labelledAnswer(sample);
      return {
        prompt: this.task.prompt(sample).tokens,
        answers: [{ ids }],
        weights: this.#tokenWeights(sample, ids, stressChanges),
      };
    });
    const total = groups.reduce((sum, { weights }) => sum + weights.reduce((a, b) => a + b, 0), 0);
    return groups.map(({ prompt, answers, weights }) => ({
      prompt,
      answers,
      targets: [{ weights: weights.map((w) => w / total), advantage: 0, reference: null, oldLogProbs: null }],
    }));
  }

  /** Vision tokens that differ from the source's at the same place weigh more: most of an edit is a copy. */
  #tokenWeights(sample: EditSample, ids: Int32Array, stressChanges: boolean): Float32Array {
    const { space } = this.task;
    const source = space.image(sample.source);
    // -1 where the prompt opened the image: then the answer lacks the source's first token.
    const imageStart = ids.indexOf(space.special.imageStart);
    return Float32Array.from(ids, (id, t) => {
      if (t < imageStart) return this.#sft.text_token_weight;
      const changed = space.isVision(id) && source[t - imageStart] !== id;
      return changed && stressChanges ? this.#sft.changed_token_weight : 1;
    });
  }
}
