import { afterEach, expect, it, vi } from 'vitest';
import { EngineError } from '../../../src/core/errors.js';
import { callNow, requireFfmpeg, runProgram } from '../../../src/data/video/ffmpeg.js';

afterEach(() => {
  vi.unstubAllEnvs();
});

it('is missing from the machine, and not from the file that was to be read or written', async () => {
  vi.stubEnv('PATH', '/nowhere');
  const missing = { message: 'ffmpeg was not found', where: undefined };
  await expect(runProgram('ffmpeg', [], '/tmp/a/clips')).rejects.toThrow(EngineError);
  await expect(runProgram('ffmpeg', [], '/tmp/a/clips')).rejects.toMatchObject(missing);
  for (const call of [() => callNow('ffmpeg', [], '/tmp/b/clips'), requireFfmpeg]) {
    expect(call).toThrow(EngineError);
    expect(call).toThrow(expect.objectContaining(missing) as Error);
  }
});
