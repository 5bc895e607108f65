/** The key of a held-out episode, `validation/<iteration>/<set>/<manner>/<prompt>`: where it stands in its evaluation. */

export interface HeldOutPlace {
  readonly iteration: number;
  /** The validation set's name, which may hold slashes. */
  readonly set: string;
  /** How the answer was sampled, such as `sampled` or `greedy`. */
  readonly manner: string;
  /** The prompt's number within its set. */
  readonly prompt: number;
}

export function heldOutKey({ iteration, set, manner, prompt }: HeldOutPlace): string {
  return `validation/${iteration}/${set}/${manner}/${prompt}`;
}

const FORM = /^validation\/(\d+)\/(.+)\/([^/]+)\/(\d+)$/;

/** Null for the key of a training episode, or of none. */
export function heldOutPlace(key: unknown): HeldOutPlace | null {
  const found = typeof key === 'string' ? FORM.exec(key) : null;
  if (found === null) return null;
  const [, iteration, set, manner, prompt] = found;
  return { iteration: Number(iteration), set, manner, prompt: Number(prompt) };
}
