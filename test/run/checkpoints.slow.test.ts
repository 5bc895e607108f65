import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { RandomStream } from '../../src/core/random.js';
import { checkpointProblems, cleanCheckpoints, latestWhole, listCheckpoints } from '../../src/run/checkpoints.js';
import { RunPaths } from '../../src/run/paths.js';
import { testFolder } from '../support/folder.js';
import { compileSources } from './compiled.js';

const base = testFolder('kill');

describe('kill -9 at random moments', () => {
  let compiled: ReturnType<typeof compileSources>;
  beforeAll(() => {
    compiled = compileSources();
  });
  afterAll(() => {
    compiled.remove();
  });

  it('always leaves the last reported checkpoint whole', async () => {
    const script = `
      const { saveCheckpoint, applyRetention, latestWhole, cleanCheckpoints } = await import(process.argv[1] + '/run/checkpoints.js');
      const { RunPaths } = await import(process.argv[1] + '/run/paths.js');
      const paths = new RunPaths(process.argv[2], 'killed');
      cleanCheckpoints(paths);
      for (let i = (latestWhole(paths)?.iteration ?? 0) + 1; ; i++) {
        const bytes = new Uint8Array(20_000 + (i * 7919) % 300_000).fill(i % 251);
        saveCheckpoint(paths, i, { 'policy.safetensors': bytes, 'trainer.json': JSON.stringify({ iteration: i }) });
        saveCheckpoint(paths, i, { 'policy.safetensors': bytes, 'trainer.json': JSON.stringify({ iteration: i }) });
        process.stdout.write(i + '\\n');
        applyRetention(paths, { keep_every: 0, keep_last: 2 });
      }`;
    const killed = new RunPaths(base, 'killed');
    const random = new RandomStream('kill moments', process.pid);
    let unfinishedSeen = 0;
    for (let round = 0; round < 10; round++) {
      const child = spawn(process.execPath, ['--input-type=module', '-e', script, compiled.dir, killed.baseExpDir]);
      let out = '';
      child.stdout.on('data', (chunk: Buffer) => (out += chunk.toString()));
      await once(child.stdout, 'data');
      await sleep(1 + random.uniform() * 40);
      const exit = once(child, 'exit');
      child.kill('SIGKILL');
      expect((await exit)[1]).toBe('SIGKILL');
      unfinishedSeen += readdirSync(killed.checkpointsDir).filter((name) => name.startsWith('.')).length;
      cleanCheckpoints(killed);
      const reported = Number(out.trimEnd().split('\n').at(-1));
      const found = latestWhole(killed);
      expect(found?.problems).toEqual([]);
      expect(found?.iteration).toBeGreaterThanOrEqual(reported);
      const trainer = readFileSync(join(found?.dir ?? '', 'trainer.json'), 'utf8');
      expect(JSON.parse(trainer)).toEqual({ iteration: found?.iteration });
      for (const iteration of listCheckpoints(killed)) {
        expect(checkpointProblems(killed.checkpoint(iteration), iteration)).toEqual([]);
      }
    }
    expect(existsSync(killed.checkpointsDir)).toBe(true);
    // Ten kills in a loop that does nothing but write must have caught some of it half-way.
    expect(unfinishedSeen).toBeGreaterThan(0);
  });
});
