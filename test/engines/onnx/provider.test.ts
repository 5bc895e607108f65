import { describe, expect, it } from 'vitest';
import { EngineError } from '../../../src/core/errors.js';
import type { Machine } from '../../../src/engines/onnx/cuda.js';
import { describeRuntime, resolveProvider } from '../../../src/engines/onnx/provider.js';

function machine(platform: NodeJS.Platform, ...files: readonly string[]): Machine {
  return { platform, libraries: '/ort', exists: (path) => files.includes(path) };
}

const LIBRARIES = ['/ort/libonnxruntime_providers_cuda.so', '/ort/libonnxruntime_providers_shared.so'];
const bare = machine('linux');
const complete = machine('linux', ...LIBRARIES, '/dev/nvidiactl');
const withoutGpu = machine('linux', ...LIBRARIES);

describe('the provider', () => {
  it("is CUDA for 'auto' where its libraries and a device are there, else the CPU", async () => {
    expect(await resolveProvider('auto', bare)).toBe('cpu');
    expect(await resolveProvider('auto', withoutGpu)).toBe('cpu');
    expect(await resolveProvider('auto', complete)).toBe('cuda');
    // Nothing but the CPU can be had here in place of Apple's GPU.
    expect(await resolveProvider('auto', machine('darwin'), async () => false)).toBe('cpu');
    expect(await resolveProvider('auto', machine('darwin'), async (provider) => provider === 'webgpu')).toBe('webgpu');
    expect(await resolveProvider('auto', bare, async () => true)).toBe('cpu');
    // The launcher hides the GPUs from a worker that it places on the CPU.
    expect(await resolveProvider('auto', { ...complete, visible: '' })).toBe('cpu');
    expect(await resolveProvider('auto', { ...complete, visible: '0' })).toBe('cuda');
  });

  it('is what was asked for', async () => {
    expect(await resolveProvider('cpu', complete)).toBe('cpu');
    expect(await resolveProvider('cuda', complete)).toBe('cuda');
    expect(await resolveProvider('webgpu')).toBe('webgpu');
  });

  it('says what is missing for CUDA and how to get it', async () => {
    const error = await resolveProvider('cuda', bare).then(
      () => null,
      (raised: unknown) => raised as EngineError,
    );
    expect(error).toBeInstanceOf(EngineError);
    expect(error?.toText()).toMatchInlineSnapshot(`
      "provider cuda: onnxruntime-node lacks libonnxruntime_providers_cuda.so and libonnxruntime_providers_shared.so in /ort
        Run \`node node_modules/onnxruntime-node/script/install.js --onnxruntime-node-install=cuda12\` where nuget.org can be reached (CUDA 12 and cuDNN 9 must be installed), or set policy.engine.provider to 'cpu'."
    `);
    await expect(resolveProvider('cuda', machine('darwin'))).rejects.toThrowErrorMatchingInlineSnapshot(
      `[EngineError: provider cuda: onnxruntime-node has no CUDA provider for darwin]`,
    );
  });

  it('is described for this machine', async () => {
    const found = await describeRuntime();
    expect(found.version).toMatch(/^1\.\d+\.\d+/);
    expect(found.available).toContain('cpu');
    expect(found.available.includes('cuda')).toBe(found.missing.cuda === undefined);
    expect((await describeRuntime(complete)).available).toContain('cuda');
    expect((await describeRuntime(withoutGpu)).missing.cuda).toBe('no NVIDIA device is visible');
  });
});
