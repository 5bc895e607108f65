/** The script that serves a model for training: the commands it would run. */
import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { describe, expect, it } from 'vitest';

const script = resolve(import.meta.dirname, '../../scripts/serve_skyrl');

function callWith(env: Readonly<Record<string, string>>, ...args: readonly string[]) {
  const options = { encoding: 'utf8', env: { ...process.env, ...env } } as const;
  const { status, stdout, stderr } = spawnSync('bash', [script, ...args], options);
  return { status, out: stdout, err: stderr };
}

const call = (...args: readonly string[]) => callWith({}, ...args);

/** The settings of the backend in a command that is printed, in the form that a shell reads. */
function settingsOf(out: string): unknown {
  const { stdout } = spawnSync('bash', ['-c', `printf '%s\\n' ${out}`], { encoding: 'utf8' });
  const lines = stdout.split('\n');
  return JSON.parse(lines[lines.indexOf('--backend-config') + 1]);
}

describe('serve_skyrl --dry-run', () => {
  it('on a CPU fills batches up to one size, and keeps a place for the base model', () => {
    const { status, out } = call('--model', '/models/q', '--mode', 'jax', '--adapters', '4', '--dry-run');
    expect(status).toBe(0);
    expect(out).toContain(
      'JAX_PLATFORMS=cpu uv run --no-project -m skyrl.tinker.api --base-model /models/q --backend jax',
    );
    expect(settingsOf(out)).toEqual({
      max_lora_adapters: 5,
      max_lora_rank: 32,
      sample_max_num_sequences: 64,
      train_micro_batch_size: 16,
    });
  });

  it('on GPUs has trainer and sampler on the same ones', () => {
    const { out } = call('--model', 'o/n', '--mode', 'fsdp', '--gpus', '8', '--tensor-parallel', '2', '--dry-run');
    expect(out).toContain('--backend fsdp');
    expect(settingsOf(out)).toEqual({
      'trainer.placement.colocate_all': true,
      'trainer.placement.policy_num_gpus_per_node': 8,
      'trainer.placement.policy_num_nodes': 1,
      'generator.inference_engine.num_engines': 4,
      'generator.inference_engine.tensor_parallel_size': 2,
    });
  });

  it('with megatron gives adapters by themselves, and takes settings and options as they are', () => {
    const sized = ['--mode', 'megatron', '--gpus', '8', '--nodes', '2', '--tensor-parallel', '4'];
    const set = ['--set', 'trainer.policy.optimizer_config.max_grad_norm=0.5'];
    const { out } = call('--model', 'o/n', ...sized, ...set, '--dry-run', '--', '--session-timeout-sec', '600');
    expect(settingsOf(out)).toMatchObject({
      'trainer.policy.megatron_config.lora_config.merge_lora': false,
      'trainer.policy.megatron_config.tensor_model_parallel_size': 4,
      'generator.inference_engine.num_engines': 4,
      'trainer.policy.optimizer_config.max_grad_norm': 0.5,
    });
    expect(out).toMatch(/--session-timeout-sec 600 $/m);
  });

  it.each(['jax', 'fsdp', 'megatron'])('listens on loopback in mode %s, where no key is asked for', (mode) => {
    expect(call('--model', 'm', '--mode', mode, '--port', '9000', '--dry-run').out).toContain(
      '--host 127.0.0.1 --port 9000',
    );
  });

  it('asks for a key where it is given one, which is in no argument', () => {
    const key = 'the-key-of-it';
    const { out } = callWith({ EDITRL_SERVER_TOKEN: key }, '--model', 'm', '--mode', 'jax', '--dry-run');
    expect(out).toContain(`uv run --no-project python ${join(dirname(script), 'guarded_skyrl.py')} --base-model m`);
    expect(existsSync(join(dirname(script), 'guarded_skyrl.py'))).toBe(true);
    expect(out).not.toContain(key);
  });

  it.each([
    [['--mode', 'jax'], '--model FOLDER'],
    [['--model', 'm'], 'allowed are jax, fsdp and megatron'],
    [
      ['--model', 'm', '--mode', 'fsdp', '--gpus', '8', '--tensor-parallel', '3'],
      '8 GPUs of a node are no multiple of it',
    ],
    [['--model', 'm', '--mode', 'jax', '--port', 'http'], '--port http: should be a number'],
    [['--model', 'm', '--mode', 'jax', '--set', 'loss_chunk_size'], '--set loss_chunk_size: should be KEY=JSON'],
    [['--model', 'm', '--host', '0.0.0.0'], "unknown option '--host'"],
  ])('rejects %j', (args, message) => {
    const { status, err } = call(...args, '--dry-run');
    expect(status).toBe(2);
    expect(err).toContain(message);
  });
});
