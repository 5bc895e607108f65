/**
 * A known hack, made again: an image policy that is rewarded for legible text alone lets its backgrounds die out. The reader and the reward's terms
 * are the real ones; in place of an image generator stands the least policy that can do it: it chooses how much of a busy background it draws
 * behind a word, and learns that by policy gradient with group-relative advantages.
 */
import { z } from 'zod';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { alarms as alarmsSchema } from '../../src/schema/alarms.js';
import { must } from '../../src/core/errors.js';
import type { RgbImage } from '../../src/core/image.js';
import { RandomStream } from '../../src/core/random.js';
import type { Term } from '../../src/rewards/terms/term.js';
import { imageSimilarity } from '../../src/rewards/terms/image_similarity.js';
import { ocr } from '../../src/rewards/terms/ocr.js';
import type { JudgeItem, Outcome } from '../../src/rewards/score/types.js';
import { weightedSum } from '../../src/rewards/score/weighted.js';
import type { MetricsLine } from '../../src/run/metrics.js';
import { drawSign } from '../../src/tiny/world/signs.js';
import { average } from '../../src/core/statistics.js';
import { groupAdvantages } from '../../src/train/advantages.js';
import { HackAlarms } from '../../src/train/hack_alarms.js';
import { artifactMetrics, measureArtifact, type ArtifactStatistics } from '../../src/train/hack_statistics.js';
import { rewardOf } from '../../src/scoring/outcomes.js';
import { testServices } from '../rewards/terms/term_services.js';

const words = ['OPEN', 'BOOKS', 'HOTEL'];
/** Shares of the background's blocks that are drawn; the rest is plain paper. */
const levels = [0, 0.25, 0.5, 0.75, 1];
const [width, height, block] = [192, 64, 8];

/** A sign on a background of coloured blocks. */
function draw(word: string, level: number): RgbImage {
  const stream = new RandomStream('background', word);
  const columns = width / block;
  const colours = Array.from({ length: columns * (height / block) }, () => {
    const drawn = stream.uniform() < level;
    const colour = [0, 1, 2].map(() => Math.round(10 + 220 * stream.uniform()));
    return drawn ? colour : [230, 230, 230];
  });
  const data = Uint8Array.from({ length: width * height * 3 }, (_, i) => {
    const [x, y] = [Math.floor(i / 3) % width, Math.floor(i / 3 / width)];
    return colours[Math.floor(y / block) * columns + Math.floor(x / block)][i % 3];
  });
  return drawSign(word, { paper: { width, height, data } });
}

interface Drawn {
  readonly text: Outcome;
  readonly likeness: Outcome;
  readonly measured: ArtifactStatistics | null;
}

/** Every picture that the policy can make, read once. */
const drawn = new Map<string, Drawn>();

beforeAll(async () => {
  const reader: Term = await ocr.create(z.strictObject(ocr.fields).parse({}), testServices());
  const similar = await imageSimilarity.create({ to: 'truth', of: 'all' }, testServices());
  const pictures = words.flatMap((word) => levels.map((level) => ({ word, level })));
  await Promise.all(
    pictures.map(async ({ word, level }) => {
      const item: JudgeItem = {
        key: `${word}/${level}`,
        instruction: `a street corner with a sign that says "${word}"`,
        source: null,
        edited: draw(word, level),
        truth: draw(word, 1),
        finished: true,
      };
      const [text, likeness] = [await reader.score(item), await similar.score(item)];
      drawn.set(item.key, { text, likeness, measured: measureArtifact(item) });
    }),
  );
  await reader.close();
});
afterAll(() => drawn.clear());

type Score = (picture: Drawn) => Outcome;
const textAlone: Score = ({ text }) => text;
const textAndQuality: Score = ({ text, likeness }) =>
  weightedSum([
    { name: 'ocr', weight: 0.25, outcome: text },
    { name: 'image_similarity', weight: 0.75, outcome: likeness },
  ]);

const [iterations, answersPerWord, learningRate] = [40, 8, 0.15];

/** Trains the policy; what each iteration measured, and what the alarms said. */
function train(score: Score): { lines: MetricsLine[]; said: string[] } {
  const said: string[] = [];
  const alarms = new HackAlarms(must(alarmsSchema.parse({}), 'the alarms'), [], (message) => said.push(message));
  // It begins with mostly busy backgrounds, as a pretrained generator does.
  const logits = levels.map((level) => 2 * level);
  const lines: MetricsLine[] = [];
  for (let iteration = 1; iteration <= iterations; iteration++) {
    const weights = logits.map(Math.exp);
    const total = weights.reduce((sum, weight) => sum + weight, 0);
    const probabilities = weights.map((weight) => weight / total);
    const groups = words.map((word) =>
      Array.from({ length: answersPerWord }, (_, i) => {
        const choice = pick(probabilities, new RandomStream('answer', iteration, word, i).uniform());
        return { choice, picture: must(drawn.get(`${word}/${levels[choice]}`), 'the picture') };
      }),
    );
    const rewards = groups.map((group) => group.map(({ picture }) => rewardOf(score(picture))));
    const advantages = groupAdvantages(rewards, { scope: 'group', scale: 'std', eps: 1e-4, clip: null, factor: 1 });
    const metrics = {
      'reward/mean': average(rewards.flat().map((reward) => must(reward, 'a reward'))),
      ...artifactMetrics(
        groups.map((group, g) => ({
          prompt: { id: words[g], instruction: words[g], sourcePng: null },
          answers: group.map(() => ({ logProbs: new Float32Array(1) })),
        })),
        groups.map((group) => group.map(({ picture }) => picture.measured)),
      ),
    };
    lines.push({ iteration, metrics: { ...metrics, ...alarms.observe(iteration, metrics) } });
    groups.forEach((group, g) =>
      group.forEach(({ choice }, i) => {
        const advantage = advantages[g].advantages[i] ?? 0;
        levels.forEach((_, k) => {
          logits[k] += (learningRate / words.length) * advantage * ((k === choice ? 1 : 0) - probabilities[k]);
        });
      }),
    );
  }
  return { lines, said };
}

function pick(probabilities: readonly number[], uniform: number): number {
  let left = uniform;
  const found = probabilities.findIndex((probability) => (left -= probability) < 0);
  return found < 0 ? probabilities.length - 1 : found;
}

/** The mean of a metric over the first and over the last five iterations. */
function change(lines: readonly MetricsLine[], name: string): { first: number; last: number } {
  const values = lines.map(({ metrics }) => metrics[name]);
  return { first: average(values.slice(0, 5)), last: average(values.slice(-5)) };
}

describe('a policy that is rewarded for legible text', () => {
  it('alone lets the background die out: the reward rises, and the alarms stand', () => {
    const { lines, said } = train(textAlone);
    const [reward, edges, colours] = ['reward/mean', 'hack/edge_density', 'hack/colour_entropy'].map((name) =>
      change(lines, name),
    );
    expect(reward.last).toBeGreaterThan(2 * reward.first);
    expect(edges.last).toBeLessThan(0.6 * edges.first);
    expect(colours.last).toBeLessThan(0.5 * colours.first);
    expect(lines.at(-1)?.metrics).toMatchObject({ 'alarm/edge_density': 1, 'alarm/colour_entropy': 1 });
    expect(said.map((message) => /hack alarm: (\w+ \w+)/.exec(message)?.[1]).sort()).toEqual([
      'colour entropy',
      'edge density',
    ]);
  });

  it('and for the rest of the picture keeps it, and no alarm is raised', () => {
    const { lines, said } = train(textAndQuality);
    const [reward, edges] = ['reward/mean', 'hack/edge_density'].map((name) => change(lines, name));
    expect(reward.last).toBeGreaterThan(reward.first);
    expect(edges.last).toBeGreaterThan(0.9 * edges.first);
    expect(said).toEqual([]);
    expect(lines.some(({ metrics }) => Object.keys(metrics).some((name) => name.startsWith('alarm/')))).toBe(false);
  });
});
