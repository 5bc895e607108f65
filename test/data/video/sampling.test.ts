import { describe, expect, it } from 'vitest';
import { sampledFrames, type Sampling, type Timeline } from '../../../src/data/video/sampling.js';

const steady = (frames: number, perSecond: number): Timeline => ({
  times: Array.from({ length: frames }, (_, i) => i / perSecond),
  end: frames / perSecond,
  tick: 0,
});
const usual: Sampling = { minFrames: 4, maxFrames: 8, interval: 2, segments: null };

describe('sampledFrames', () => {
  it('takes one frame for each interval, between the least and the most', () => {
    expect(sampledFrames(steady(30, 10), usual)).toEqual([0, 9, 19, 29]);
    expect(sampledFrames(steady(120, 10), usual)).toEqual([0, 23, 47, 71, 95, 119]);
    expect(sampledFrames(steady(3000, 10), usual)).toHaveLength(8);
  });

  it("rounds as Python's round does: halves to the even number", () => {
    const shown = (seconds: number) => sampledFrames(steady(seconds * 10, 10), { ...usual, minFrames: 1 });
    expect([1, 3, 5, 7, 9].map((seconds) => [seconds, (shown(seconds) as readonly number[]).length])).toEqual([
      ...[
        [1, 1],
        [3, 2],
        [5, 2],
        [7, 4],
        [9, 4],
      ],
    ]);
  });

  it('takes the frames of numpy.linspace(0, frames - 1, n, dtype=int) where they are evenly spaced', () => {
    for (let frames = 4; frames <= 200; frames++) {
      const found = sampledFrames(steady(frames, 10), usual);
      if ('misfit' in found) throw new Error(found.misfit);
      const n = found.length;
      const whole = Array.from({ length: n }, (_, i) => Math.floor((i * (frames - 1)) / (n - 1)));
      expect(found, `${frames} frames`).toEqual(whole);
    }
  });

  it.each([
    { ticks: 1000, rates: [24000 / 1001, 30, 60] },
    { ticks: 600, rates: [24000 / 1001, 25] },
    { ticks: 24, rates: [24, 12] },
  ])('takes the same frames of times that a file rounds to $ticks ticks a second', ({ ticks, rates }) => {
    for (const rate of rates) {
      for (let frames = 4; frames <= 200; frames++) {
        const { times, end } = steady(frames, rate);
        const rounded = times.map((time) => Math.round(time * ticks) / ticks);
        const sampling = { ...usual, interval: 0.1, maxFrames: 13 };
        const found = sampledFrames({ times: rounded, end, tick: 1 / ticks }, sampling) as readonly number[];
        const n = found.length;
        const whole = Array.from({ length: n }, (_, i) => Math.floor((i * (frames - 1)) / (n - 1)));
        expect(found, `${frames} frames`).toEqual(whole);
      }
    }
  });

  it('takes the first frame where one is asked for, and all if there are no more', () => {
    expect(sampledFrames(steady(30, 10), { ...usual, minFrames: 1, maxFrames: 1 })).toEqual([0]);
    expect(sampledFrames(steady(5, 1), { ...usual, minFrames: 5, maxFrames: 9 })).toEqual([0, 1, 2, 3, 4]);
  });

  it('samples each segment by its own length', () => {
    const sampling = { ...usual, interval: 0.25, segments: [17, 8, 5] };
    expect(sampledFrames(steady(30, 10), sampling)).toEqual([
      ...[0, 2, 5, 8, 10, 13, 16],
      ...[17, 19, 21, 24],
      ...[25, 26, 27, 29],
    ]);
  });

  it('gives the last segment what a count that was rounded at each cut leaves over, and no more', () => {
    const sampling = { ...usual, segments: [11, 18] };
    expect(sampledFrames(steady(30, 10), sampling)).toEqual([0, 3, 6, 10, 11, 17, 23, 29]);
    expect(sampledFrames(steady(31, 10), sampling)).toEqual([0, 3, 6, 10, 11, 17, 23, 30]);
    for (const frames of [28, 32]) {
      expect(sampledFrames(steady(frames, 10), sampling)).toEqual({
        misfit: `it has ${frames} frames, and meta.frame_cnts count 29`,
      });
    }
  });

  it('takes the frame that is seen at a time where frames stay differently long', () => {
    const times = [0, 0.1, 0.2, 2, 2.1, 4];
    expect(sampledFrames({ times, end: 5, tick: 0 }, { ...usual, minFrames: 5, maxFrames: 5 })).toEqual([
      0, 2, 3, 4, 5,
    ]);
  });

  it('reports what a video lacks', () => {
    expect(sampledFrames(steady(3, 10), usual)).toEqual({
      misfit: 'it has 3 frames, but at least 4 are needed',
    });
    expect(sampledFrames(steady(30, 10), { ...usual, segments: [27, 3] })).toEqual({
      misfit: 'segment 2 has 3 frames, but at least 4 are needed',
    });
    expect(sampledFrames(steady(30, 10), { ...usual, segments: [15, 11] })).toEqual({
      misfit: 'it has 30 frames, and meta.frame_cnts count 26',
    });
  });
});
