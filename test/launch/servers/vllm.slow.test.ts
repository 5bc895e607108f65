import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, describe, expect, it } from 'vitest';
import { CheckpointError, ConfigError, EndpointError } from '../../../src/core/errors.js';
import { Guardian } from '../../../src/launch/processes/guardian.js';
import type { ManagedServer } from '../../../src/launch/servers/managed.js';
import { checkServable, startVllm, vllmCommand } from '../../../src/launch/servers/vllm.js';
import type { RemoteSampling } from '../../../src/train/policies/vllm/remote_sampling.js';
import { samplingEngine } from '../../../src/config/schema/sampler.js';
import { StubProgram } from '../../train/policies/vllm/program.js';
import { writeSmallBase } from '../../train/policies/vllm/small_base.js';
import { testFolder, testFolders } from '../../support/folder.js';
import { until } from './kept_program.js';

const base = writeSmallBase(testFolder('vllm-base'));
const folders = testFolders('vllm-server');
const guardian = new Guardian();
afterAll(() => guardian.close());
const closing: ManagedServer[] = [];
afterEach(async () => {
  for (const server of closing.splice(0)) await server.close();
});

function sampledBy(serve: object, rank: number | null = 4): RemoteSampling {
  return {
    engine: samplingEngine.parse({ type: 'vllm', serve }),
    model: base,
    rank,
    adaptsVision: false,
    pixelLimits: null,
    blocks: false,
    contextSize: 64,
  };
}

function prepare(serve: object = {}, rank?: number | null) {
  const program = new StubProgram(folders());
  const notices: string[] = [];
  const lost: EndpointError[] = [];
  const over = new AbortController();
  const log = join(folders(), 'logs/vllm.log');
  const start = async (): Promise<ManagedServer> => {
    const server = await startVllm({
      sampled: sampledBy({ command: program.command, ...serve }, rank),
      devices: (serve as { devices?: number[] }).devices ?? null,
      model: base,
      log,
      guardian,
      user: { notice: (line) => notices.push(line), lost: (error) => lost.push(error), over: over.signal },
      say: () => undefined,
    });
    closing.push(server);
    return server;
  };
  return { program, notices, lost, over, log, start };
}

function isRunning(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

describe('a vLLM of the run', () => {
  it('is up when it is announced, requires its key, and ends with the run', async () => {
    const { program, notices, log, start } = prepare({ devices: [3] });
    program.spoil('slow');
    const starting = start();
    await until(() => program.starts.length === 1);
    let up = false;
    void starting.then(() => (up = true));
    await new Promise((resolve) => setTimeout(resolve, 100));
    expect(up).toBe(false);
    program.mend();
    const server = await starting;
    const { url, token } = server;
    const ask = (headers: Record<string, string>): Promise<number> =>
      fetch(`${url}/v1/models`, { headers }).then(({ status }) => status);
    expect(await ask({})).toBe(401);
    expect(await ask({ authorization: `Bearer ${token}` })).toBe(200);
    const [{ pid, args, env }] = program.starts;
    expect(args.slice(0, 1)).toEqual([base]);
    expect(args.join()).not.toContain(token);
    expect(env).toMatchObject({ CUDA_VISIBLE_DEVICES: '3', VLLM_ALLOW_RUNTIME_LORA_UPDATING: 'True' });
    expect(notices[0]).toContain(`its log is ${log}`);
    await server.close();
    expect(isRunning(pid)).toBe(false);
    expect(readFileSync(log, 'utf8')).toContain('Application startup complete');
  });

  it('whose weights are replaced asks for its key at every route but one', async () => {
    const { program, start } = prepare({}, null);
    const { url, token } = await start();
    const ask = (path: string, headers: Record<string, string> = {}): Promise<number> =>
      fetch(`${url}${path}`, { headers }).then(({ status }) => status);
    expect(await ask('/weight_info')).toBe(401);
    expect(await ask('/weight_info', { authorization: `Bearer ${token}` })).toBe(200);
    expect(await ask('/health')).toBe(200);
    const [{ args, env }] = program.starts;
    expect(args.join(' ')).toContain('--middleware editrl_guard.Guard --enable-scale-out');
    expect(args).not.toContain('--enable-lora');
    expect(env).toMatchObject({ VLLM_SERVER_DEV_MODE: '1' });
    expect(env).not.toHaveProperty('VLLM_ALLOW_RUNTIME_LORA_UPDATING');
  });

  it('that dies is started again at its address', async () => {
    const { program, notices, start } = prepare();
    const { url, token } = await start();
    process.kill(program.starts[0].pid, 'SIGKILL');
    await until(() => program.starts.length === 2);
    await until(() => notices.some((line) => line.includes('was ended by SIGKILL; restarting it in 0.25 s (1 of 5)')));
    let status = 0;
    while (status === 0) {
      status = await fetch(`${url}/health`).then(
        (reply) => reply.status,
        () => 0,
      );
    }
    expect(status).toBe(200);
    expect(program.starts[1].env['VLLM_API_KEY']).toBe(token);
  });

  it('that does not start says what it said', async () => {
    const { program, start } = prepare();
    program.spoil('broken');
    await expect(start()).rejects.toThrow(EndpointError);
    await expect(start()).rejects.toThrow(/vLLM did not start: it ended with exit code 1\n {2}\| .*CUDA out of memory/);
    expect(program.starts).toHaveLength(2);
  });

  it('that loads for too long, or whose run ends meanwhile, is ended', async () => {
    const { program, start } = prepare({ start_timeout_s: 0.5 });
    program.spoil('slow');
    await expect(start()).rejects.toThrow('was not up within 0.5 s');
    const other = prepare();
    other.program.spoil('slow');
    const starting = other.start();
    await until(() => other.program.starts.length === 1);
    other.over.abort();
    await expect(starting).rejects.toThrow(EndpointError);
    for (const { pid } of [...program.starts, ...other.program.starts]) expect(isRunning(pid)).toBe(false);
  });

  it('that is not installed is named once, with how to get it', async () => {
    const { start } = prepare({ command: ['no-such-vllm', 'serve'] });
    const error: unknown = await start().catch((found: unknown) => found);
    expect(error).toBeInstanceOf(ConfigError);
    expect((error as ConfigError).toText()).toContain("rollout.engine.serve.command: 'no-such-vllm' cannot be started");
    expect((error as ConfigError).toText()).toContain('pip install vllm');
  });
});

describe('the command line', () => {
  it('asks for adapters of at least the rank, processed log-probabilities and the policy’s context', () => {
    const command = vllmCommand(
      sampledBy({ devices: [1, 2], gpu_memory_utilization: 0.4, flags: ['--dtype=bfloat16'] }, 9),
      '/model',
      5,
    );
    expect(command.join(' ')).toBe(
      'vllm serve /model --host 127.0.0.1 --port 5 --enable-lora --max-lora-rank 16 --logprobs-mode processed_logprobs --generation-config vllm --max-model-len 64 --gpu-memory-utilization 0.4 --tensor-parallel-size 2 --dtype=bfloat16',
    );
    expect(vllmCommand(sampledBy({}, 1), '/model', 5)).not.toContain('--tensor-parallel-size');
  });

  it('brings the rules of image blocks', () => {
    const blocks = { ...sampledBy({}, 1), blocks: true };
    expect(vllmCommand(blocks, '/model', 5).join(' ')).toContain(
      '--enable-scale-out --logits-processors editrl_rules:Rules --no-async-scheduling ',
    );
  });

  it('applies adapters of the vision encoder and connector', () => {
    const adapting = { ...sampledBy({}, 1), adaptsVision: true };
    expect(vllmCommand(adapting, '/model', 5).join(' ')).toContain(
      '--enable-lora --max-lora-rank 1 --enable-tower-connector-lora ',
    );
  });

  it('lets images be as large as the policy sees them, and leaves out no frame', () => {
    const seeing = { ...sampledBy({}, 1), pixelLimits: { min_pixels: 64, max_pixels: 4096 } };
    expect(vllmCommand(seeing, '/model', 5).join(' ')).toContain(
      '--enable-lora --max-lora-rank 1 --enable-scale-out --mm-processor-kwargs {"size":{"shortest_edge":64,"longest_edge":4096}} --media-io-kwargs {"video": {"fps": 30}} ',
    );
  });
});

describe('a model', () => {
  it('can be served where it is whole and in the Hugging Face layout', () => {
    expect(() => checkServable(base)).not.toThrow();
    expect(() => checkServable(folders())).toThrow(CheckpointError);
    const adapter = folders();
    writeFileSync(join(adapter, 'adapter_config.json'), '{}');
    expect(() => checkServable(adapter)).toThrow('it is an adapter');
  });
});
