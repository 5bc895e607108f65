/** Small runs whose policy sees and whose answers a vLLM samples: pictures that an adapter describes edits of, and clips that all weights answer questions on. */
import { join } from 'node:path';
import { expect } from 'vitest';
import { configFile, Place, type Ended, type Live } from './editrl.js';

const ENV = { APP__REWARD_FUNCTION_API_BASE: 'http://127.0.0.1:9' };

export interface Seeing {
  readonly config: string;
  readonly overlays: readonly string[];
  /** The run that the policy starts from: its config's name. */
  readonly start: string;
  readonly reward: string;
  /** Settings that say what is trained. */
  readonly trains: readonly string[];
  /** What is trained, in a checkpoint. */
  readonly weights: string;
  readonly contextSize: number;
}

export const edits: Seeing = {
  config: 'configs/edit_response.jsonnet',
  overlays: ['configs/lib/edit_tiny.libsonnet', 'test/e2e/recipes/edit_small.libsonnet'],
  start: 'edit_start',
  reward: 'jpeg_size',
  trains: ['policy.lora={"rank": 2, "alpha": 8}', 'policy.train={"mm_vision": false, "mm_mlp": false}'],
  weights: 'adapter_model.safetensors',
  contextSize: 48,
};

export const clips: Seeing = {
  config: 'configs/video_actions.jsonnet',
  overlays: ['configs/lib/video_tiny.libsonnet', 'test/e2e/recipes/video_small.libsonnet'],
  start: 'video_start',
  reward: 'word_overlap',
  trains: ['policy.lora=null'],
  weights: 'policy.safetensors',
  contextSize: 80,
};

/** How long such runs are, and what samples. */
export interface Sampling {
  readonly iterations: number;
  readonly episodes: number;
  readonly heldOut: number;
  /** `rollout.engine.serve`. */
  readonly serve: { readonly command: readonly string[]; readonly flags?: readonly string[] };
}

/** A place with the start of such runs, trained and exported. */
export class SeeingPlace {
  private constructor(
    readonly place: Place,
    private readonly seeing: Seeing,
    private readonly env: NodeJS.ProcessEnv,
  ) {}

  /** `env`: variables of all that is called there. */
  static async make(seeing: Seeing, env: NodeJS.ProcessEnv = {}): Promise<SeeingPlace> {
    const made = new SeeingPlace(Place.make(), seeing, { ...ENV, ...env });
    const { start } = seeing;
    expect(await made.call('run', configFile(start), ...made.#overlays)).toMatchObject({ code: 0, err: '' });
    expect(await made.call('export', join(made.place.run(start)), '--out', made.model)).toMatchObject({ code: 0 });
    return made;
  }

  /** The folder of what was exported. */
  get model(): string {
    return join(this.place.dir, 'model');
  }

  call(...args: readonly string[]): Promise<Ended> {
    return this.place.call(args, this.env);
  }

  /** Starts a run that goes on from there. */
  start(run: string, { iterations, episodes, heldOut, serve }: Sampling): Live {
    const sets = [
      `run_name=${run}`,
      `num_iterations=${iterations}`,
      `policy.model=${this.model}`,
      ...this.seeing.trains,
      'optimizer.learning_rate=0.01',
      'optimizer.per_device_batch_size=4',
      `rollout.engine=${JSON.stringify({ type: 'vllm', serve })}`,
      `rollout.episodes_per_iteration=${episodes}`,
      'rollout.generations_per_sample=4',
      'rollout.max_response_tokens=6',
      'reward.terms=[]',
      `reward.mode=${this.seeing.reward}`,
      `validation.prompts=${heldOut}`,
      'validation.every_n_iterations=null',
      'checkpoint.save_every_n_iterations=2',
    ];
    const given = [...this.#overlays, ...sets.flatMap((set) => ['--set', set])];
    return this.place.start(['run', this.seeing.config, ...given], this.env);
  }

  /** What is trained, at an iteration. */
  weights(run: string, iteration: number): Buffer {
    return this.place.checkpointFile(run, iteration, this.seeing.weights);
  }

  get #overlays(): string[] {
    return this.seeing.overlays.flatMap((file) => ['--with', file]);
  }
}
