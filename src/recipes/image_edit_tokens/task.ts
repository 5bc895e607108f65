/** The task `image_edit_tokens`: ties edit datasets, a token policy, the vision-token decoder and a judged reward together (EARL). */
import { basename, dirname } from 'node:path';
import { ConfigError, DataError } from '../../core/errors.js';
import { decodeImage } from '../../core/image.js';
import type { DataSource, ImageEditSettings } from '../../config/settings.js';
import { openEditDataset } from '../../data/edits.js';
import type { Sampler } from '../../data/sampler.js';
import { createSampler } from '../../data/sampler.js';
import type { EditSample, SampleSource } from '../../data/types.js';
import { sessionOptions } from '../../engines/onnx/session_options.js';
import type { VisionTokenizer } from '../../environments/vision_tokens.js';
import { checkDecoderConfig, initDecoder } from '../../nets/decoder/config.js';
import type { TokenAnswer, TokenAsked } from '../../policies/tokens/batch.js';
import { Emu3Format, type Emu3Prompt } from '../../policies/tokens/emu3/format.js';
import { SPECIAL, TokenSpace, type ParsedAnswer } from '../../policies/tokens/emu3/space.js';
import type { PolicyModel } from '../../policies/tokens/model.js';
import type { WordTokenizer } from '../../policies/tokens/tokenizer.js';
import type { JudgeItem } from '../../rewards/types.js';
import type { RunResolver } from '../../models/reference.js';
import { loadPolicy, loadTokenizer } from '../../policies/tokens/load.js';
import { loadVisionTokenizer } from '../../environments/vision_tokens.js';
import { modelFolder } from '../../models/reference.js';

/** A dataset with a name that metrics can carry. */
export interface NamedSource {
  readonly name: string;
  readonly source: SampleSource<EditSample>;
}

/** A prompt of the task, ready for the policy. */
export interface EditPrompt extends TokenAsked<Emu3Prompt> {
  readonly sample: EditSample;
}

/** A judged artifact on its way: the answer taken apart, its image, and what the judge will see. */
export interface RenderedAnswer {
  readonly parsed: ParsedAnswer;
  readonly item: JudgeItem;
}

export class ImageEditTask {
  private constructor(
    readonly settings: ImageEditSettings,
    readonly tokenizer: WordTokenizer,
    readonly space: TokenSpace,
    readonly environment: VisionTokenizer,
    readonly train: readonly NamedSource[],
    readonly validation: readonly NamedSource[],
    readonly sampler: Sampler,
    readonly resolveRun: RunResolver,
  ) {}

  /** Opens datasets and loads the frozen models. Raises DataError or CheckpointError naming what is missing. */
  static open(settings: ImageEditSettings, resolveRun: RunResolver): ImageEditTask {
    const tokenizer = loadTokenizer(modelFolder(settings.policy.tokenizer, resolveRun));
    const { chat_words, image_header, end_after_image } = settings.policy;
    const forms = { chatWords: chat_words, imageHeader: image_header, endAfterImage: end_after_image };
    const space = new TokenSpace(tokenizer, forms);
    const environment = loadVisionTokenizer(
      modelFolder(settings.environment.model, resolveRun),
      sessionOptions(settings.environment.engine),
    );
    if (environment.config.codebook_size !== space.visionCount) {
      throw new DataError(
        `the image tokenizer has ${environment.config.codebook_size} codes, the policy's vocabulary ${space.visionCount} vision tokens`,
        { next: 'Let policy.tokenizer and environment.model name models that belong together.' },
      );
    }
    const train = settings.data.train.map(openNamed);
    const coefficients = settings.data.train.flatMap(({ coefficient }) => (coefficient === null ? [] : [coefficient]));
    const sampler = createSampler(
      train.map(({ source }) => source),
      { seed: settings.seed, coefficients },
    );
    const validation = openValidation(settings.data.validation);
    return new ImageEditTask(settings, tokenizer, space, environment, train, validation, sampler, resolveRun);
  }

  /** Whether answers begin with reasoning: the prefill opens a thinking block. */
  get thinks(): boolean {
    return this.settings.policy.assistant_prefill.includes(SPECIAL.startThinking);
  }

  /** The policy that training starts from: the referenced model, or random weights. */
  startingPolicy(): PolicyModel<Emu3Prompt> {
    const { policy, seed } = this.settings;
    const format = new Emu3Format(this.space);
    if (policy.model !== null) return loadPolicy(modelFolder(policy.model, this.resolveRun), format);
    if (policy.init === null) throw new DataError('policy.model and policy.init are both null');
    const { initializer_range, embedding_std, head_dim, ...rest } = policy.init;
    const config = {
      ...rest,
      head_dim: head_dim ?? rest.hidden_size / rest.num_attention_heads,
      vocab_size: this.space.size,
    };
    checkDecoderConfig(config);
    const weights = initDecoder(
      config,
      { embedding_std: embedding_std ?? initializer_range ?? 0.02, initializer_range },
      seed,
    );
    return { config, format, weights };
  }

  /** The sample at a global position of the endless training order. */
  trainingSample(globalIndex: number): EditSample {
    const place = this.sampler.at(globalIndex);
    return this.train[place.source].source.read(place.index);
  }

  /** Raises DataError where the context leaves no room for an image after the prompt. */
  prompt(sample: EditSample): EditPrompt {
    const { assistant_prefill, model_context_size } = this.settings.policy;
    const ids = this.space.prompt(sample.source, sample.instruction, assistant_prefill);
    const { height, width } = sample.source;
    const imageOpen = this.space.opensImage(ids);
    const needed = this.space.answer(sample.source, null, imageOpen).length;
    if (ids.length + needed > model_context_size) {
      throw new DataError(
        `a prompt of ${ids.length} tokens and an image of ${needed} exceed model_context_size ${model_context_size}`,
        { where: sample.id, next: 'Raise policy.model_context_size, or leave this sample out.' },
      );
    }
    return { sample, tokens: { ids, height, width, imageOpen } };
  }

  /** The labelled answer's ids. Raises DataError where the sample has none. */
  labelledAnswer(sample: EditSample): Int32Array {
    if (sample.target === null || (this.thinks && sample.rationale === null)) {
      throw new DataError(
        sample.target === null ? 'the sample has no labelled answer' : 'the sample has no rationale to think',
        {
          where: sample.id,
          next: 'Supervised training needs labelled data: name such a dataset in data.train.',
        },
      );
    }
    const imageOpen = this.settings.policy.assistant_prefill.endsWith(SPECIAL.imageStart);
    return Int32Array.from(this.space.answer(sample.target, this.thinks ? sample.rationale : null, imageOpen));
  }

  /** Decodes answers to images and puts together what the judge sees. `keys` name the episodes. */
  async render(
    prompt: EditPrompt,
    answers: readonly TokenAnswer[],
    keys: readonly string[],
  ): Promise<RenderedAnswer[]> {
    const parsed = answers.map(({ ids }) => this.space.parse(ids, prompt.tokens.imageOpen));
    const grids = parsed.flatMap(({ grid }) => (grid === null ? [] : [grid]));
    const decoded = await this.environment.decode(grids);
    const { sample } = prompt;
    const source = await decodeImage(sample.sourcePng, sample.id);
    const truth = sample.targetPng === null ? null : await decodeImage(sample.targetPng, sample.id);
    let next = 0;
    return parsed.map((answer, i) => ({
      parsed: answer,
      item: {
        key: keys[i],
        instruction: sample.instruction,
        source,
        truth,
        edited: answer.grid === null ? null : decoded[next++],
        finished: answers[i].finished,
      },
    }));
  }

  async dispose(): Promise<void> {
    await this.environment.dispose();
  }
}

/** `…/tiny/s/validation/list/tokenized_datalist.json` is called `s`. */
function openNamed({ path }: DataSource): NamedSource {
  return { name: basename(dirname(datasetFolder(path))), source: openEditDataset(path) };
}

/**
 * Opens held-out sets. Metrics and records know them by their names: those that would share one take their own folders', so that
 * `…/earl/a_val` and `…/earl/b_val` are called `a_val` and `b_val`. Raises ConfigError where names are still the same.
 */
function openValidation(sources: readonly DataSource[]): NamedSource[] {
  const opened = sources.map(openNamed);
  const named = opened.map(({ name, source }, i) => {
    const shared = opened.some((other, j) => j !== i && other.name === name);
    return { name: shared ? basename(datasetFolder(sources[i].path)) : name, source };
  });
  for (const { name } of named) {
    const paths = sources.filter((_, i) => named[i].name === name).map(({ path }) => path);
    if (paths.length < 2) continue;
    throw new ConfigError(`found ${paths.length} held-out sets that are called '${name}': ${paths.join(', ')}`, {
      where: 'data.validation',
      next: 'Name each dataset once, and keep different ones in folders of different names.',
    });
  }
  return named;
}

/** The folder of the dataset that a datalist below it, or the folder itself, stands for. */
function datasetFolder(path: string): string {
  return path.endsWith('.json') ? dirname(dirname(path)) : path;
}
