/**
 * Runs whose policy sees and whose answers vLLM samples: pictures that an adapter describes edits of, and clips that all weights answer questions on.
 * The stand-in sees by eyes of its own, so that what it samples and what the trainer computes agree only where pictures arrive as they are.
 */
import { mkdirSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { hasFfmpeg } from '../data/video/odd_files.js';
import { StubProgram } from '../engines/vllm/program.js';
import type { Ended, Live, Place } from './editrl.js';
import { expectFollowed, killWithin, storedAnswers } from './sampled_runs.js';
import { clips, edits, SeeingPlace, type Seeing } from './seeing_runs.js';

const ITERATIONS = 4;
const EPISODES = 8;
const HELD_OUT = 4;
/** Held-out answers come before and after training, sampled and most probable ones. */
const STORED = ITERATIONS * EPISODES + 4 * HELD_OUT;

function seeingRun(name: string, seeing: Seeing): void {
  describe(name, () => {
    let own: SeeingPlace;
    let place: Place;
    let program: StubProgram;
    let whole: Ended;

    const sampled = (run: string): Live =>
      own.start(run, {
        iterations: ITERATIONS,
        episodes: EPISODES,
        heldOut: HELD_OUT,
        serve: { command: program.command },
      });
    const storedOf = (run: string): number => storedAnswers(place, run);
    const weightsOf = (run: string, iteration = ITERATIONS): Buffer => own.weights(run, iteration);
    /** But for times. */
    const learnt = (run: string): unknown[] =>
      place
        .metrics(run)
        .map((line) => Object.fromEntries(Object.entries(line).filter(([key]) => !/^time\/|^tokens\/s$/.test(key))));

    beforeAll(async () => {
      own = await SeeingPlace.make(seeing);
      place = own.place;
      mkdirSync(join(place.dir, 'vllm'));
      program = new StubProgram(join(place.dir, 'vllm'));
      whole = await sampled('whole').ended;
    }, 300_000);
    afterAll(() => place.remove());

    it('learns from what the server samples of what both see alike', () => {
      expect(whole).toMatchObject({ code: 0, err: '' });
      expect(whole.out).toContain('(processed) and are taken over');
      const lines = place.metrics('whole').slice(1);
      expectFollowed(lines, ITERATIONS);
      expect(lines.some((line) => Number(line['policy/grad_norm']) > 0)).toBe(true);
      expect(weightsOf('whole').equals(weightsOf('whole', 2))).toBe(false);
      expect(storedOf('whole')).toBe(STORED);
      expect(readdirSync(join(place.run('whole'), 'adapters'))).toEqual([]);
    });

    it('is served with flags by which pictures arrive as they are sent', () => {
      const { args } = program.starts[0];
      const behind = (flag: string): unknown => JSON.parse(args[args.indexOf(flag) + 1]);
      expect(args[0]).toBe(own.model);
      expect(args).toContain('--enable-scale-out');
      expect(behind('--mm-processor-kwargs')).toMatchObject({ size: { shortest_edge: 1024 } });
      expect(behind('--media-io-kwargs')).toEqual({ video: { fps: 30 } });
      expect(behind('--max-model-len')).toBe(seeing.contextSize);
    });

    it('records episodes that score the same again', async () => {
      const [first] = readFileSync(join(place.run('whole'), 'episodes/000001.jsonl'), 'utf8').split('\n');
      const episode = JSON.parse(first) as { readonly tokens: readonly number[]; readonly log_prob: number };
      // The answer that was stored before it was used.
      const stored = readFileSync(join(place.run('whole'), 'answers.jsonl'), 'utf8')
        .trim()
        .split('\n')
        .map((line) => JSON.parse(line) as { readonly key: string; readonly ids: unknown; log_probs: number[] })
        .find(({ key }) => key === '1/0/0')!;
      expect(stored.ids).toEqual(episode.tokens);
      expect(stored.log_probs.reduce((sum, one) => sum + one, 0)).toBeCloseTo(episode.log_prob, 3);
      const again = await own.call('rescore', 'whole', '--offline', '--exp-dir', place.runs, '--json');
      expect(again).toMatchObject({ code: 0, err: '' });
      expect(JSON.parse(again.out)).toMatchObject({ compared: STORED, differ: 0, not_rescored: {} });
    });

    it('killed within an iteration and resumed comes to the same, and asks for nothing again', async () => {
      const before = 2 * HELD_OUT + (ITERATIONS - 1) * EPISODES;
      const start = (): Live => sampled('killed');
      await killWithin({ place, program, run: 'killed', start, before, given: EPISODES / 2 });
      const resumed = await own.call('resume', 'killed');
      const announced = `rollout.engine.serve.command: ${program.command.join(' ')}\n`;
      expect(resumed).toMatchObject({ code: 0, err: announced });
      expect(resumed.out).toContain('resuming killed from iteration 2');
      expect(weightsOf('killed').equals(weightsOf('whole'))).toBe(true);
      expect(learnt('killed')).toEqual(learnt('whole'));
      expect(storedOf('killed')).toBe(STORED);
    });
  });
}

seeingRun('edits of pictures, described by an adapter', edits);

describe.skipIf(!hasFfmpeg)('with ffmpeg (skipped without it)', () => {
  seeingRun('questions on clips, answered by all weights', clips);
});
