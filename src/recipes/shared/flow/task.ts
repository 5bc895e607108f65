/** What the tasks of flow models share: datasets, cached prompts, and latents in records. */
import { LRUCache } from 'lru-cache';
import type { FlowTransformerConfig } from '../../../compute/nets/flow/config.js';
import type { Datasets, NamedSource, TrainingOrder } from '../../../data/datasets.js';
import type { SamplePlace, SamplerSource } from '../../../data/sampler.js';
import type { RecordedEpisode } from '../../../run/episodes.js';
import type { FlowAnswer } from '../../../train/policies/flow/batch.js';
import type { PromptSource } from '../../../train/scoring/task.js';
import { recordedLatents, type ImagePrompt } from './answers.js';

export abstract class FlowTask<P extends ImagePrompt, S extends SamplerSource> {
  readonly validation: readonly PromptSource<P>[];
  readonly #train: LRUCache<string, P>;
  readonly #heldOut: LRUCache<string, P>;

  /**
   * Prompts for training and held-out ones are each cached up to `maxSize` bytes, because encoding them takes longer than a solver step of a
   * large model. Training passes many prompts between two evaluations, which must not evict the held-out ones.
   */
  constructor(
    readonly data: Datasets<S>,
    protected readonly config: FlowTransformerConfig,
    cached: { readonly maxSize: number; readonly sizeCalculation: (prompt: P) => number },
  ) {
    this.validation = data.prompts((source, index) => this.promptAt(source, index));
    this.#train = new LRUCache(cached);
    this.#heldOut = new LRUCache(cached);
  }

  /** Makes a prompt. Raises DataError for a sample that cannot be read, or that the model cannot read. */
  protected abstract promptOf(source: S, index: number): Promise<P>;

  /** Whether the model predicts the clean latents. */
  get predictsSample(): boolean {
    return this.config.prediction === 'sample';
  }

  get heldOut(): readonly NamedSource<S>[] {
    return this.data.heldOut;
  }

  get order(): TrainingOrder {
    return this.data.order;
  }

  prompt(position: number | SamplePlace): Promise<P> {
    const { source, index } = this.data.at(position);
    return this.promptAt(source, index);
  }

  /** The prompt of a sample, cached. Raises the errors of `promptOf`. */
  async promptAt(source: S, index: number): Promise<P> {
    // By its place in the settings: two datasets may share a list and differ in the folder of their images.
    const key = `${this.data.sources.indexOf(source)} ${index}`;
    const kept = this.data.validation.includes(source) ? this.#heldOut : this.#train;
    const known = kept.get(key);
    if (known !== undefined) return known;
    const prompt = await this.promptOf(source, index);
    kept.set(key, prompt);
    return prompt;
  }

  reread(episode: RecordedEpisode): FlowAnswer {
    const { finished } = episode;
    return { latents: recordedLatents(episode), actions: [], logProbs: new Float32Array(0), finished };
  }
}
