/** The runners of verl and flow_grpo, with stand-ins for the trainers that call them as the real ones do. */
import { spawnSync } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import type { Outcome } from '../../src/rewards/score/types.js';
import { picture, place, readsAndJudges, rewardOf } from '../rewards/server/served.js';
import { Place, until, type Live } from './editrl.js';

const hasPython = spawnSync('python3', ['--version']).status === 0;
const here = place();
const places: Place[] = [];
afterAll(async () => {
  await here.close();
  places.forEach((one) => one.remove());
});

/** A place with files, by path. */
function placeWith(files: Readonly<Record<string, string>>): Place {
  const made = Place.make();
  places.push(made);
  for (const [path, text] of Object.entries(files)) {
    mkdirSync(dirname(join(made.dir, path)), { recursive: true });
    writeFileSync(join(made.dir, path), text);
  }
  return made;
}

async function reach(at: Place, name: string, live: Live, iteration: number): Promise<void> {
  await until(`iteration ${iteration}`, () => !live.isAlive() || (at.state(name)?.iteration ?? 0) >= iteration);
  expect(live.isAlive()).toBe(true);
}

const sets = (settings: Readonly<Record<string, unknown>>): string[] =>
  Object.entries(settings).flatMap(([key, value]) => ['--set', `${key}=${JSON.stringify(value)}`]);

/** Overrides, reward function, file logger, checkpoints and resume of verl's main_ppo. */
const MAIN_PPO = `
import importlib.util, json, os, sys, time
settings = dict(word.lstrip("+").split("=", 1) for word in sys.argv[1:])
reward = "reward.custom_reward_function"
spec = importlib.util.spec_from_file_location("custom_module", settings[reward + ".path"])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
raw = getattr(module, settings[reward + ".name"])
kwargs = {name: settings[f"{reward}.reward_kwargs.{name}"] for name in ("url", "prompt")}
folder = settings["trainer.default_local_dir"]
assert settings["trainer.resume_mode"] == "auto" and json.loads(settings["trainer.logger"]) == ["console", "file"]
saved = os.path.join(folder, "latest_checkpointed_iteration.txt")
step = int(open(saved).read()) if os.path.exists(saved) else 0
print("after step", step, flush=True)
log = open(os.environ["VERL_FILE_LOGGER_PATH"], "wb", buffering=0)
while step < int(settings["trainer.total_training_steps"]):
    step += 1
    extra = {"question": "2 + 2", "num_turns": None, "rollout_reward_scores": {}}
    score = raw(data_source="gsm8k", solution_str="4", ground_truth="4", extra_info=extra, **kwargs)
    data = {"critic/score/mean": score, "actor/pg_loss": 1 / step, "val-core/gsm8k/reward/mean@1": step / 10, "val-core/math/reward/mean@1": 0}
    log.write(json.dumps({"step": step, "data": data}).encode() + b"\\n")
    if step % int(settings["trainer.save_freq"]) == 0:
        open(saved, "w").write(str(step))
    time.sleep(float(os.environ["PAUSE_S"]))
`;

/** The loop of scripts/train_sd3.py: evaluation, checkpoint, sampling, rewards, statistics, updates. */
const TRAIN_SD3 = `
import importlib.util, os, sys, time
import flow_grpo.rewards, wandb
from flow_grpo.stat_tracking import PerPromptStatTracker
spec = importlib.util.spec_from_file_location("config", sys.argv[1].partition("=")[2])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
config = module.get_config()
print("adapter", config.train.lora_path, "seed", config.seed, flush=True)
reward_fn = getattr(flow_grpo.rewards, "multi_score")("cpu", config.reward_fn)
tracker = PerPromptStatTracker(True)
image, epoch, step = open(os.environ["IMAGE"]).read(), 0, 0
while True:
    if epoch % config.eval_freq == 0:
        rewards, _ = reward_fn([image], ["p"], [{}], only_strict=False)
        wandb.log({"eval_images": [object()], "eval_reward_avg": rewards["avg"][0]}, step=step)
    if epoch % config.save_freq == 0 and epoch > 0:
        folder = os.path.join(config.save_dir, "checkpoints", f"checkpoint-{step}", "lora")
        os.makedirs(folder)
        open(os.path.join(folder, "adapter_model.safetensors"), "w").close()
    rewards, _ = reward_fn([image] * 2, ("p", "p"), ({}, {}))
    wandb.log({"epoch": epoch, **{f"reward_{key}": value[0] for key, value in rewards.items()}}, step=step)
    tracker.update(["p", "p"], rewards["avg"])
    wandb.log({"loss": 0.5, "epoch": epoch, "inner_epoch": 0}, step=step)
    step, epoch = step + 1, epoch + 1
    time.sleep(float(os.environ["PAUSE_S"]))
`;
const GRPO_CONFIG = `
from types import SimpleNamespace
def get_config(name):
    config = SimpleNamespace(name=name, train=SimpleNamespace(lora_path=None), eval_freq=1, save_freq=1)
    config.update = config.__dict__.update
    return config
`;

it('the overlay for eight GPUs gives a config', async () => {
  const at = placeWith({});
  const overlay = ['--with', 'experiments/foreign/trl_8_gpus.libsonnet'];
  const { code, out } = await at.call(['config', 'show', 'experiments/foreign/trl.jsonnet', ...overlay]);
  expect(code).toBe(0);
  expect(JSON.parse(out)).toMatchObject({
    parameters: { dataset: { chat: true }, reward: { columns: { expected: 'expected', source: 'image' } } },
    launch: { processes: 8, devices: null, env: {} },
  });
});

// Its reason: the runners are Python scripts.
describe.skipIf(!hasPython)('the runner of', () => {
  it('verl passes settings and reward, copies metrics, and continues from its checkpoint after a stop', async () => {
    const score = ({ answer, expected }: { answer?: string; expected?: string }): Outcome => {
      const value = Number(answer === expected);
      return { kind: 'scored', value, normalised: value, parts: {} };
    };
    const { url } = await here.start(rewardOf({ exact: { weight: 1, score } }));
    const at = placeWith({
      'verl/__init__.py': '',
      'verl/trainer/__init__.py': '',
      'verl/trainer/main_ppo.py': MAIN_PPO,
    });
    const env = { PYTHONPATH: at.dir, PYTHONDONTWRITEBYTECODE: '1', CUDA_VISIBLE_DEVICES: '', PAUSE_S: '0.2' };
    const run = [
      ...['run', 'experiments/foreign/verl.jsonnet'],
      ...sets({ num_iterations: 12, 'parameters.reward.url': url, 'parameters.verl': { 'trainer.save_freq': 2 } }),
    ];
    const live = at.start(run, env);
    await reach(at, 'verl', live, 5);
    live.kill('SIGINT');
    expect(await live.ended).toMatchObject({ code: 130 });
    expect(await at.call(run, { ...env, PAUSE_S: '0' })).toMatchObject({ code: 0, err: '' });
    expect(at.state('verl')).toMatchObject({ state: 'finished', iteration: 12 });
    expect(at.log('verl')).toMatch(/after step [468]/);
    expect(at.metrics('verl').map((line) => [line.iteration, line['reward/mean']])).toEqual(
      Array.from({ length: 12 }, (_, i) => [i + 1, 1]),
    );
    expect(at.metrics('verl')[3]).toMatchObject({ 'policy/loss': 0.25, 'validation/sampled/mean': 0.2 });
  });

  it('flow_grpo scores images, ends after its epochs, and continues from its last adapter after SIGKILL', async () => {
    const { url } = await here.start(readsAndJudges);
    const at = placeWith({
      'clone/scripts/train_sd3.py': TRAIN_SD3,
      'clone/config/grpo.py': GRPO_CONFIG,
      'clone/flow_grpo/__init__.py': '',
      'clone/flow_grpo/rewards.py': '',
      'clone/flow_grpo/stat_tracking.py':
        'class PerPromptStatTracker:\n    def __init__(self, global_std): pass\n    def update(self, prompts, rewards): pass\n',
      'packages/wandb.py': 'def log(data, step): pass\n',
      image: await picture(2),
    });
    const env = {
      ...{ FLOW_GRPO: join(at.dir, 'clone'), PYTHONPATH: join(at.dir, 'packages'), PYTHONDONTWRITEBYTECODE: '1' },
      ...{ CUDA_VISIBLE_DEVICES: '', IMAGE: join(at.dir, 'image'), PAUSE_S: '0.2' },
    };
    const run = [
      ...['run', 'experiments/foreign/flow_grpo.jsonnet'],
      ...sets({
        'launch.command': ['python3', 'experiments/foreign/flow_grpo_run.py'],
        'parameters.reward.url': url,
        'parameters.keys': { save_freq: 2, eval_freq: 2 },
        num_iterations: 12,
      }),
    ];
    const live = at.start(run, env);
    await reach(at, 'flow_grpo', live, 5);
    live.kill('SIGKILL');
    await live.ended;
    expect(await at.call(run, { ...env, PAUSE_S: '0' })).toMatchObject({ code: 0, err: '' });
    expect(at.state('flow_grpo')).toMatchObject({ state: 'finished', iteration: 12 });
    const [, epochs] = /adapter \S+from_000000\/checkpoints\/checkpoint-(\d+)\/lora/.exec(at.log('flow_grpo')) ?? [];
    expect(at.log('flow_grpo')).toContain(`seed ${42 + Number(epochs)}`);
    const metrics = at.metrics('flow_grpo');
    expect(metrics.map(({ iteration }) => iteration)).toEqual(Array.from({ length: 13 }, (_, i) => i));
    for (const line of metrics.slice(1)) {
      expect(line).toMatchObject({ 'reward/mean': metrics[0]['validation/sampled/mean'], 'policy/loss': 0.5 });
    }
    expect(metrics[12]['validation/sampled/mean']).toBeGreaterThan(0);
  });
});
