import { describe, expect, it } from 'vitest';
import { EngineError } from '../../../src/core/errors.js';
import type { Machine } from '../../../src/compute/onnx/cuda.js';
import { describeRuntime, resolveProvider } from '../../../src/compute/onnx/provider.js';

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

  it("is not the CPU for 'auto' where an NVIDIA GPU would be idle", async () => {
    const idle = machine('linux', '/dev/nvidia0', '/dev/nvidiactl');
    await expect(resolveProvider('auto', idle)).rejects.toThrow(EngineError);
    await expect(resolveProvider('auto', idle)).rejects.toThrow(/NVIDIA GPU \(\/dev\/nvidia0\).*providers_cuda/);
    await expect(resolveProvider('auto', machine('linux', '/dev/nvidiactl', LIBRARIES[0]))).rejects.toThrow(
      '_shared.so',
    );
    // Hidden, or chosen, or of another maker for all that is known.
    expect(await resolveProvider('auto', { ...idle, visible: '' })).toBe('cpu');
    expect(await resolveProvider('cpu', idle)).toBe('cpu');
    expect(await resolveProvider('auto', machine('linux', '/dev/dxg'))).toBe('cpu');
  });

  it('reports what is missing for CUDA and how to get it', async () => {
    const error = await resolveProvider('cuda', bare).then(
      () => null,
      (raised: unknown) => raised as EngineError,
    );
    expect(error).toBeInstanceOf(EngineError);
    expect(error?.message).toContain('lacks libonnxruntime_providers_cuda.so and libonnxruntime_providers_shared.so');
    expect(error?.next).toContain('scripts/fetch_cuda');
    // Neither hiding the GPUs nor launch.devices helps an engine that requires CUDA.
    expect(error?.next).not.toMatch(/CUDA_VISIBLE_DEVICES|launch\.devices/);
    await expect(resolveProvider('cuda', machine('darwin'))).rejects.toThrow(/no CUDA provider for darwin/);
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
