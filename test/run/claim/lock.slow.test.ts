import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { realLockWorld, type LockOwner } from '../../../src/run/claim/lock.js';
import { RunPaths } from '../../../src/run/paths.js';
import { testFolder } from '../../support/folder.js';
import { compileSources } from '../compiled.js';
import { leaveLock } from '../left_lock.js';

const base = testFolder('lock');

describe('racing processes', () => {
  it('lets exactly one win each round, from nothing and from a dead owner', async () => {
    const compiled = compileSources();
    const racers = 4;
    const rounds = 40;
    try {
      for (let round = 0; round < rounds; round++) {
        const at = new RunPaths(join(base, 'race'), `r${round}`);
        if (round % 2 === 1) leaveLock(at, { host: realLockWorld().host, pid: 4_194_300 }, 1);
      }
      const script = `
        const { acquireLock } = await import(process.argv[1] + '/run/claim/lock.js');
        const { RunPaths } = await import(process.argv[1] + '/run/paths.js');
        process.stdout.write('ready\\n');
        process.stdin.once('data', (data) => {
          const start = Number(data.toString());
          const won = [];
          for (let round = 0; round < ${rounds}; round++) {
            while (Date.now() < start + round * 8);
            try { acquireLock(new RunPaths(process.argv[2], 'r' + round)); won.push(round); }
            catch (error) { if (!/in use by/.test(error.message)) throw error; }
          }
          process.stdout.write(JSON.stringify(won) + '\\n');
        });
        process.stdin.on('end', () => process.exit(0));`;
      const children = Array.from({ length: racers }, () =>
        spawn(process.execPath, ['--input-type=module', '-e', script, compiled.dir, join(base, 'race')]),
      );
      const outputs = children.map(() => '');
      children.forEach((child, i) => child.stdout.on('data', (chunk: Buffer) => (outputs[i] += chunk.toString())));
      await Promise.all(children.map((child) => Promise.race([once(child.stdout, 'data'), once(child, 'exit')])));
      const start = Date.now() + 50;
      for (const child of children) child.stdin.write(String(start));
      await Promise.all(
        children.map(async (child, i) => {
          while (!outputs[i].includes(']') && child.exitCode === null) {
            await Promise.race([once(child.stdout, 'data'), once(child, 'exit')]);
          }
        }),
      );
      const won = outputs.map((output) => JSON.parse(output.split('\n')[1]) as number[]);
      for (const child of children) child.stdin.end();
      expect(won.flat().sort((a, b) => a - b)).toEqual(Array.from({ length: rounds }, (_, round) => round));
      for (let round = 0; round < rounds; round++) {
        const left = readdirSync(join(base, 'race', `r${round}`));
        expect(left).toEqual(['lock.json']);
        const owner = JSON.parse(readFileSync(join(base, 'race', `r${round}`, 'lock.json'), 'utf8')) as LockOwner;
        expect(children.findIndex((child) => child.pid === owner.pid)).toBe(
          won.findIndex((list) => list.includes(round)),
        );
      }
    } finally {
      compiled.remove();
    }
  });
});
