import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, describe, expect, inject, it } from 'vitest';
import { startJudge, type RunningJudge } from '../../src/rewards/rule_judge/server.js';
import { Place, RL, until } from './editrl.js';

let judge: RunningJudge | null = null;
let place: Place | null = null;
afterEach(async () => {
  await judge?.close();
  place?.remove();
});

describe('a judge that is a job of its own', () => {
  it('is waited for until its node file is there, and then asked', async () => {
    place = Place.make(inject('template'));
    judge = await startJudge({ host: '127.0.0.1', port: 0 });
    const nodeFile = join(place.dir, 'judge_node.txt');
    const endpoint = JSON.stringify({ node_file: nodeFile, port: Number(new URL(judge.url).port) });
    const settings = ['run_name=node_file', `reward.endpoint=${endpoint}`].flatMap((set) => ['--set', set]);
    const run = place.startTraining(RL, ...settings);
    await until('the run waits', () => !run.isAlive() || place?.state('node_file')?.state === 'waiting');
    expect(place.state('node_file')?.reason).toContain("cannot read the judge's node file");
    writeFileSync(nodeFile, '127.0.0.1\n');
    expect(await run.ended).toMatchObject({ code: 0 });
    expect(place.state('node_file')).toMatchObject({ state: 'finished', iteration: 6 });
    for (const line of place.metrics('node_file').slice(1)) {
      expect(line['reward/mean']).toBeGreaterThanOrEqual(0);
    }
  });
});
