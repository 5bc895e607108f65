/**
 * Which frames of a video are shown to a policy. Pure functions of the frames' times. The numbers of frames are those of Qwen2.5-VL's
 * fine-tuning loader (https://github.com/QwenLM/Qwen2.5-VL), which reads a video as one piece; here a video may consist of segments, one
 * for each action, as `meta.frame_cnts` of a sample counts them.
 */

/** How densely a video is sampled. */
export interface Sampling {
  /** Least frames of each segment. */
  readonly minFrames: number;
  /** Most frames of each segment. */
  readonly maxFrames: number;
  /** The seconds that one frame covers. */
  readonly interval: number;
  /**
   * Frames of each segment, in order; null samples the whole as one segment. They add up to those of the file, or to fewer by one for each segment
   * at most, as where a tool rounded at its cuts (the list published with Qwen2.5-VL-Video has such): the last segment has these, too.
   */
  readonly segments: readonly number[] | null;
}

/** The times of a video's frames in seconds, rising. */
export interface Timeline {
  /** When each frame is shown first. */
  readonly times: readonly number[];
  /** When the last frame ends. */
  readonly end: number;
  /** The unit of the times; 0 if they are exact. */
  readonly tick: number;
}

/** The problem of an impossible sampling, as the rest of a message. */
export interface SamplingProblem {
  readonly misfit: string;
}

/**
 * The frames to show, by their place in the file, from 0 and never falling. Each segment of d seconds with c frames shows n = round(d / interval)
 * (halves to the even number), at least `minFrames` and at most `maxFrames` and c: those that are seen at n times, evenly from the segment's first frame to its last, both
 * included; one frame alone is the first. Where frames are not evenly spaced, one that stays long may be seen at several of these times.
 */
export function sampledFrames({ times, end, tick }: Timeline, sampling: Sampling): readonly number[] | SamplingProblem {
  const { segments, minFrames, maxFrames, interval } = sampling;
  const counts = [...(segments ?? [times.length])];
  const counted = counts.reduce((sum, count) => sum + count, 0);
  const uncounted = times.length - counted;
  if (uncounted < 0 || uncounted > counts.length) {
    return { misfit: `it has ${times.length} frames, and meta.frame_cnts count ${counted}` };
  }
  counts[counts.length - 1] += uncounted;
  const shown: number[] = [];
  let first = 0;
  for (const [index, count] of counts.entries()) {
    if (count < minFrames) {
      const what = segments === null ? 'it' : `segment ${index + 1}`;
      return { misfit: `${what} has ${count} frame${count === 1 ? '' : 's'}, but at least ${minFrames} are needed` };
    }
    const next = first + count;
    const seconds = (times[next] ?? end) - times[first];
    const wanted = Math.min(Math.max(roundedToEven(seconds / interval), minFrames), maxFrames, count);
    shown.push(...evenly({ times, tick }, first, next - 1, wanted));
    first = next;
  }
  return shown;
}

/** As Python's `round` has it, by which the original counts: halves become even. */
function roundedToEven(value: number): number {
  const rounded = Math.round(value);
  return rounded - value === 0.5 && rounded % 2 === 1 ? rounded - 1 : rounded;
}

/** The precision of times in seconds. */
const TOLD = 1e-6;

/** The frames visible at `count` times between the times of frames `first` and `last`. */
function evenly({ times, tick }: Omit<Timeline, 'end'>, first: number, last: number, count: number): number[] {
  const span = times[last] - times[first];
  // A time may be a tick next to its frame, if ticks are much shorter than frames.
  const apart = span / Math.max(1, last - first) / (2 * Math.max(1, count - 1));
  const same = Math.min(tick + TOLD, apart);
  let frame = first;
  return Array.from({ length: count }, (_, i) => {
    const time = count === 1 ? times[first] : times[first] + (span * i) / (count - 1);
    while (frame < last && times[frame + 1] <= time + same) frame += 1;
    return frame;
  });
}
