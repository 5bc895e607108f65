/** Rewrites prompts outside of a run, with a policy trained by `prompt_enhance` or with any language model. */
import { DataError, UsageError, CheckpointError, ConfigError } from '../../core/errors.js';
import { RandomStream } from '../../core/random.js';
import { resolveProvider } from '../../compute/onnx/provider.js';
import { sessionOptions } from '../../compute/onnx/session.js';
import { promptText } from '../../models/chat/template.js';
import { modelFolder, type RunResolver } from '../../models/reference.js';
import { FreeText } from '../../models/tokenizer/format.js';
import { loadPolicy } from '../../train/policies/tokens/load.js';
import { samplingOf, type TokenSampling } from '../../train/policies/tokens/sampling.js';
import { Sampler } from '../../train/policies/tokens/rollout.js';
import type { ModelReference } from '../../config/schema/model.js';
import type { RunSettings } from '../../config/schema/run.js';
import { rewriteOf } from './rewrite.js';
import { defaultEnhancing, promptEnhance, type PromptEnhanceSettings } from './settings.js';
import { opensThought, splitThought } from '../shared/words/task.js';
import { questionOf, openTextWords } from '../text_answers/task.js';
import { textReader } from '../../rewards/terms/clip/model.js';
import { encoderOf } from './open.js';

/** A rewritten prompt. */
export interface EnhancedPrompt {
  readonly prompt: string;
  /** The rewritten prompt for an image model. May be empty. */
  readonly enhanced_prompt: string;
  /** Text that was stripped around it. */
  readonly stripped: readonly string[];
  /** Whether the rewrite ended before the length limit. */
  readonly finished: boolean;
  /** Number of tokens at the rewrite's end that the run's image model cuts off. Null if its limit is unknown. */
  readonly unread: number | null;
  /**
   * Number of tokens at the prompt's end that CLIP cuts off if the run's reward compares images with the prompt. Null
   * if no reward does.
   */
  readonly prompt_unread: number | null;
}

export interface Enhancer {
  /** Models that could not be opened, so that their token limits are unknown. */
  readonly problems: readonly string[];
  /**
   * Rewrites prompts, in order. The same prompt, position and seed give the same rewrite. Raises DataError for a prompt
   * that leaves no room for an answer.
   */
  enhance(prompts: readonly string[], first: number): Promise<EnhancedPrompt[]>;
  dispose(): Promise<void>;
}

/** The settings that a rewrite depends on. */
type Enhancing = Pick<PromptEnhanceSettings, 'policy' | 'prompt' | 'rollout' | 'data'>;

export interface EnhancerOptions {
  readonly resolveRun: RunResolver;
  readonly seed: number;
  /** Overrides the settings. */
  readonly sampling: Partial<Pick<TokenSampling, 'temperature' | 'maxTokens'>>;
}

/**
 * Rewrites with the weights and vocabulary of a checkpoint of a `prompt_enhance` run. Raises UsageError for other kinds
 * of runs.
 */
export function openRunEnhancer(
  settings: RunSettings,
  checkpoint: string,
  options: EnhancerOptions,
): Promise<Enhancer> {
  if (settings.task !== promptEnhance.name) {
    throw new UsageError(`the run ${settings.run_name} is one of '${settings.task}', which rewrites no prompts`, {
      next: `Name a run of '${promptEnhance.name}', or a model with --model.`,
    });
  }
  const enhance = settings as unknown as PromptEnhanceSettings;
  const { policy, prompt, rollout, data } = enhance;
  const made = { ...policy, model: checkpoint, tokenizer: null };
  return openEnhancer({ policy: made, prompt, rollout, data }, options, readersOf(enhance, options.resolveRun));
}

/**
 * Rewrites with an untrained language model and the recipe's default instructions. Raises the CheckpointErrors and
 * DataErrors of training.
 */
export function openModelEnhancer(model: ModelReference, options: EnhancerOptions): Promise<Enhancer> {
  return openEnhancer(defaultEnhancing(model), options, NO_READERS);
}

async function openEnhancer(
  settings: Enhancing,
  { resolveRun, seed, sampling }: EnhancerOptions,
  readers: Readers,
): Promise<Enhancer> {
  const { policy, prompt, data } = settings;
  const words = openTextWords(settings, resolveRun);
  const prefill = await words.tokenizer.encode(policy.assistant_prefill, { addSpecial: false });
  const format = new FreeText(words.tokenizer, new Set(words.ends));
  const model = loadPolicy(modelFolder(policy.model!, resolveRun), format);
  const provider = await resolveProvider(policy.engine.provider);
  const sampler = new Sampler(model, {
    contextSize: policy.model_context_size,
    constrained: false,
    separateVocabularies: false,
    session: sessionOptions({ ...policy.engine, provider }),
  });
  const how = { ...samplingOf(settings), ...sampling };
  const promptTokens = async (text: string) => {
    const row = { [data.columns.prompt]: text };
    const columns = { ...data.columns, expected: null };
    const question = questionOf(row, { prompt, data: { columns } }, text);
    const options = { addGenerationPrompt: true, variables: prompt.variables };
    const { text: read, addSpecial } = await promptText(words, question.prompt, options, policy.assistant_prefill);
    const ids = await words.tokenizer.encode(read, { addSpecial });
    if (ids.length >= policy.model_context_size) throw tooLong(text, ids.length, policy.model_context_size);
    return { ids, thinks: opensThought(read, policy.assistant_prefill, policy.thinking) };
  };
  return {
    problems: readers.problems,
    async enhance(prompts, first) {
      const tokens = await Promise.all(prompts.map(promptTokens));
      const whole = tokens.map(({ ids }) => ({ tokens: { ids } }));
      const answers = await sampler.sample(
        {
          prompts: whole,
          among: whole,
          answersPerPrompt: 1,
          how,
          weights: 'current',
          random: (p) => new RandomStream(seed, 'enhance', first + p),
        },
        model.weights,
        'loaded',
      );
      return Promise.all(
        answers.map(async ([{ ids, finished }], p): Promise<EnhancedPrompt> => {
          const ownIds = finished ? ids.subarray(0, -1) : ids;
          const text = words.tokenizer.decode([...prefill, ...ownIds], { skipSpecial: true });
          const { thought, answer } = splitThought(text, policy.thinking, tokens[p].thinks);
          const { prompt: enhanced_prompt, stripped } = rewriteOf(answer, thought);
          const unread = (await readers.rewrite?.(enhanced_prompt)) ?? null;
          const prompt_unread = (await readers.prompt?.(prompts[p])) ?? null;
          return { prompt: prompts[p], enhanced_prompt, stripped, finished, unread, prompt_unread };
        }),
      );
    },
    dispose: () => sampler.dispose(),
  };
}

/** Number of a prompt's characters that a message shows. */
const SHOWN = 60;

function tooLong(prompt: string, tokens: number, size: number): DataError {
  return new DataError(
    `of ${tokens} tokens with what goes around it, it leaves no room for an answer: the context is ${size}`,
    {
      where: `'${prompt.length > SHOWN ? `${prompt.slice(0, SHOWN)}…` : prompt}'`,
      next: 'Say it in fewer words.',
    },
  );
}

/** Number of tokens cut from the end of a text. */
export type CountUnread = (text: string) => number | Promise<number>;

export interface Readers {
  /** Counts tokens of a rewrite that the image model cuts off. Null if unknown, for example with a server. */
  readonly rewrite: CountUnread | null;
  /** Counts tokens of the user's prompt that CLIP cuts off. Null if no CLIP compares images with it. */
  readonly prompt: CountUnread | null;
  /** Models that could not be opened. */
  readonly problems: readonly string[];
}

export const NO_READERS: Readers = { rewrite: null, prompt: null, problems: [] };

/**
 * Opens the models that read a run's prompts. A model that no longer exists is a problem, not an error, because
 * rewriting works without it.
 */
export function readersOf({ environment, reward }: PromptEnhanceSettings, resolveRun: RunResolver): Readers {
  const problems: string[] = [];
  const opened = (what: string, open: () => CountUnread): CountUnread | null => {
    try {
      return open();
    } catch (error) {
      if (!(error instanceof CheckpointError || error instanceof ConfigError)) throw error;
      problems.push(`how much ${what} reads is not known: ${error.where ?? ''}: ${error.message}`);
      return null;
    }
  };
  const clip = reward.terms.find(({ name }) => name === 'clip');
  return {
    rewrite:
      environment.type === 'model'
        ? opened('the image model', () => {
            const encoder = encoderOf(environment, modelFolder(environment.model, resolveRun), resolveRun);
            return (text) => encoder.unread(text);
          })
        : null,
    prompt:
      clip === undefined
        ? null
        : opened('clip', () => {
            const tokenizer = textReader(modelFolder((clip as { model: ModelReference }).model, resolveRun));
            return (text) => tokenizer.unread(text);
          }),
    problems,
  };
}
