/**
 * Selects the frames of a video for a policy, as pure functions of the frames' times. The numbers of frames equal those of
 * Qwen2.5-VL's fine-tuning loader (https://github.com/QwenLM/Qwen2.5-VL), which reads a video as one piece. Here, a video may
 * consist of segments, one for each action, according to a sample's `meta.frame_cnts`.
 */

/** The density of sampling. */
export interface Sampling {
  /** Minimum number of frames per segment. */
  readonly minFrames: number;
  /** Maximum number of frames per segment. */
  readonly maxFrames: number;
  /** The seconds that one frame covers. */
  readonly interval: number;
  /**
   * Frames of each segment, in order. Null samples the whole video as one segment.
   * Their sum equals the file's number of frames, or is smaller by at most one per segment, because some tools round at
   * cuts (as in the list published with Qwen2.5-VL-Video). The last segment then includes the rest.
   */
  readonly segments: readonly number[] | null;
}

/** The times of a video's frames in seconds, rising. */
export interface Timeline {
  /** When each frame is shown first. */
  readonly times: readonly number[];
  /** When the last frame ends. */
  readonly end: number;
  /** The unit of the times. 0 if they are exact. */
  readonly tick: number;
}

/** The problem of an impossible sampling, as the rest of a message. */
export interface SamplingProblem {
  readonly misfit: string;
}

/**
 * The indices of the selected frames in the file, in non-decreasing order.
 * A segment of d seconds with c frames contributes n = round(d / interval) frames (halves to even), at least `minFrames`
 * and at most `maxFrames` and c. These are the frames visible at n evenly spaced times from the segment's first to its last
 * frame, both included, or the first frame if n = 1. A frame that stays long may be selected several times.
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

/** Rounds halves to even, like Python's `round` in the original. */
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
