/**
 * A trainer that lives elsewhere: a service that holds the weights, the optimizer and the checkpoints, and a policy that asks it. Only plain data
 * crosses between them, late, and either way may be lost.
 */
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { CheckpointError, EndpointError, InternalError, must } from '../../../src/core/errors.js';
import type { RandomStream } from '../../../src/core/random.js';
import type { CheckpointFiles } from '../../../src/models/files.js';
import type { LossSpec } from '../../../src/policies/losses/table.js';
import type {
  Group,
  Capabilities,
  LearnReport,
  TrainGroup,
  SampleRequest,
  Statistics,
  StepReport,
  WeightsOf,
} from '../../../src/policies/policy.js';
import type { TokenAnswer, TokenRequest, TokenPrompt } from '../../../src/policies/tokens/batch.js';
import { estimatedDivergence, type LanguagePolicy } from '../../../src/policies/tokens/language_policy.js';
import type { TokenPolicy } from '../../../src/policies/tokens/policy.js';
import type { TokenSampling } from '../../../src/policies/tokens/sampling.js';
import { writeCheckpoint } from '../../support/checkpoint.js';

type Groups<P extends TokenPrompt> = readonly Group<TokenRequest<P>, TokenAnswer>[];

/** What may be asked of the service, with the bodies as they cross. */
interface Requests<P extends TokenPrompt> {
  sample: {
    readonly prompts: readonly TokenRequest<P>[];
    readonly among: readonly TokenRequest<P>[];
    readonly answersPerPrompt: number;
    readonly how: TokenSampling;
    /** Numbers in [0, 1) for each prompt and answer, of which a token takes at most one. */
    readonly uniforms: readonly (readonly Float64Array[])[];
  };
  statistics: { readonly groups: Groups<P>; readonly of: WeightsOf; readonly among?: Groups<P> };
  learn: {
    readonly lessons: readonly TrainGroup<TokenRequest<P>, TokenAnswer>[];
    readonly loss: string;
    readonly among?: Groups<P>;
  };
  step: { readonly learningRate: number };
  checksum: object;
  save: { readonly name: string };
  load: { readonly name: string; readonly steps: number };
}
type RequestName = keyof Requests<never>;

/** Loses the requests of a name from the n-th on: on their way there, or on their way back. */
export interface Outage {
  readonly request: RequestName;
  readonly nth: number;
  readonly lost: 'request' | 'reply';
}

export class TrainerService<P extends TokenPrompt> {
  /** Names of what was asked, in order. */
  readonly asked: RequestName[] = [];
  lose: Outage | null = null;
  #policy: TokenPolicy<P> | null = null;

  constructor(
    /** The folder of what it has saved, by names. */
    private readonly checkpoints: string,
  ) {}

  /** What it trained before is gone; what was saved stays. */
  host(policy: TokenPolicy<P>): void {
    this.#policy = policy;
  }

  async ask<K extends RequestName>(name: K, body: Requests<P>[K]): Promise<unknown> {
    const sent = structuredClone(body);
    this.asked.push(name);
    const nth = this.asked.filter((one) => one === name).length;
    const lost = this.lose?.request === name && this.lose.nth <= nth ? this.lose.lost : null;
    await delay(this.asked.length % 3);
    const away = new EndpointError('the trainer is away', { where: 'trainer://test' });
    if (lost === 'request') throw away;
    const reply: unknown = structuredClone(await this.#answers[name](sent));
    if (lost === 'reply') throw away;
    await delay(this.asked.length % 2);
    return reply;
  }

  readonly #answers: { readonly [K in RequestName]: (body: Requests<P>[K]) => Promise<unknown> } = {
    sample: ({ uniforms, ...request }) =>
      this.#here.sample({
        ...request,
        weights: 'current',
        random: (p, g) => {
          let at = 0;
          return { uniform: () => must(uniforms[p][g].at(at++), 'a random number') } as RandomStream;
        },
      }),
    statistics: ({ groups, of, among }) => this.#here.statistics(groups, of, among),
    learn: ({ lessons, loss, among }) => this.#here.learn(lessons, JSON.parse(loss) as LossSpec, among),
    step: ({ learningRate }) => this.#here.step(learningRate),
    checksum: () => this.#here.checksum(),
    save: async ({ name }) => {
      writeCheckpoint(join(this.checkpoints, name), await this.#here.files());
      return `trainer://test/weights/${name}`;
    },
    load: async ({ name, steps }) => {
      const folder = join(this.checkpoints, name);
      if (!existsSync(folder)) return false;
      await this.#here.restore(folder, steps);
      return true;
    },
  };

  get #here(): TokenPolicy<P> {
    return must(this.#policy, 'a policy that is trained here');
  }
}

const REMOTE_FILE = 'remote.json';

/** Trains by asking the service. A checkpoint of it names what the service has saved. */
export class RemotePolicy<P extends TokenPrompt> implements LanguagePolicy<P> {
  readonly actions = 'tokens';
  steps = 0;

  constructor(
    private readonly service: TrainerService<P>,
    private readonly close: () => Promise<void>,
    readonly capabilities: Capabilities = {
      losses: ['likelihood', 'reinforce', 'ratio'],
      reference: true,
      average: false,
      hiddenStates: false,
    },
  ) {}

  async sample(request: SampleRequest<TokenRequest<P>, TokenSampling>): Promise<TokenAnswer[][]> {
    const { prompts, among, answersPerPrompt, how, random } = request;
    if (request.weights !== 'current') throw new InternalError('the trainer keeps no average');
    const uniforms = prompts.map((_, p) =>
      Array.from({ length: answersPerPrompt }, (_, g) => {
        const stream = random(p, g);
        return Float64Array.from({ length: how.maxTokens }, () => stream.uniform());
      }),
    );
    const body = { prompts: prompts.map(plain), among: among.map(plain), answersPerPrompt, how, uniforms };
    return (await this.service.ask('sample', body)) as TokenAnswer[][];
  }

  async statistics(groups: Groups<P>, of: WeightsOf, among?: Groups<P>): Promise<Statistics[][]> {
    const body = {
      groups: groups.map(plainGroup),
      of,
      ...(among === undefined ? {} : { among: among.map(plainGroup) }),
    };
    return (await this.service.ask('statistics', body)) as Statistics[][];
  }

  divergence(now: Statistics, reference: Statistics): Float64Array {
    return estimatedDivergence(now, reference);
  }

  async learn(
    lessons: readonly TrainGroup<TokenRequest<P>, TokenAnswer>[],
    loss: LossSpec,
    among?: Groups<P>,
  ): Promise<LearnReport> {
    const body = {
      lessons: lessons.map((lesson) => ({ ...plainGroup(lesson), targets: lesson.targets })),
      loss: JSON.stringify(loss),
      ...(among === undefined ? {} : { among: among.map(plainGroup) }),
    };
    return (await this.service.ask('learn', body)) as LearnReport;
  }

  async step(learningRate: number): Promise<StepReport> {
    // It may be taken though its reply is lost.
    this.steps += 1;
    return (await this.service.ask('step', { learningRate })) as StepReport;
  }

  async checksum(): Promise<string> {
    return (await this.service.ask('checksum', {})) as string;
  }

  async files(): Promise<CheckpointFiles> {
    const name = `step-${this.steps}`;
    const path = await this.service.ask('save', { name });
    return { [REMOTE_FILE]: `${JSON.stringify({ name, path })}\n` };
  }

  async restore(folder: string, steps: number): Promise<void> {
    let name: string;
    try {
      ({ name } = JSON.parse(readFileSync(join(folder, REMOTE_FILE), 'utf8')) as { name: string });
    } catch (cause) {
      throw new CheckpointError('does not name what the trainer has saved', {
        where: join(folder, REMOTE_FILE),
        cause,
      });
    }
    const found = await this.service.ask('load', { name, steps });
    if (found !== true) throw new CheckpointError(`the trainer has no ${name}`, { where: folder });
    this.steps = steps;
  }

  read(): never {
    throw new InternalError('the trainer gives no hidden states');
  }

  dispose(): Promise<void> {
    return this.close();
  }
}

/** What a trainer has to know of a prompt; a task's prompts hold more, which cannot be sent. */
function plain<P extends TokenPrompt>({ tokens }: TokenRequest<P>): TokenRequest<P> {
  return { tokens };
}

function plainGroup<P extends TokenPrompt>({ prompt, answers }: Group<TokenRequest<P>, TokenAnswer>) {
  return { prompt: plain(prompt), answers };
}
