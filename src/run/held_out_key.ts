/** The key of a held-out episode, `validation/<iteration>/<set>/<sampling>/<prompt>`: where it stands in its evaluation. */

export interface HeldOutKeyParts {
  readonly iteration: number;
  /** The validation set's name, which may hold slashes. */
  readonly set: string;
  /** How the answer was sampled, such as `sampled` or `greedy`. */
  readonly sampling: string;
  /** The prompt's number within its set. */
  readonly prompt: number;
}

export function heldOutKey({ iteration, set, sampling, prompt }: HeldOutKeyParts): string {
  return `validation/${iteration}/${set}/${sampling}/${prompt}`;
}

const FORM = /^validation\/(\d+)\/(.+)\/([^/]+)\/(\d+)$/;

/** Null for the key of a training episode, or of none. */
export function parseHeldOutKey(key: unknown): HeldOutKeyParts | null {
  const found = typeof key === 'string' ? FORM.exec(key) : null;
  if (found === null) return null;
  const [, iteration, set, sampling, prompt] = found;
  return { iteration: Number(iteration), set, sampling, prompt: Number(prompt) };
}
