/** Reports how much of a policy's context is left for answers. */

/** The checked rows of one dataset: all of them, or a sample at equal distances. */
export interface PromptRoom {
  /** The dataset's name in the config. */
  readonly name: string;
  readonly checked: number;
  /** Number of rows that leave an answer less room than rollout.max_response_tokens. */
  readonly short: number;
  /** Minimum and maximum of the tokens that those prompts leave. 0 if there are none. */
  readonly least: number;
  readonly most: number;
}

/** The settings that determine the room. */
export interface RoomLimits {
  readonly context: number;
  readonly answer: number;
}

/**
 * Whether the context cuts the answers to all rows, although the settings allow longer ones. An answer limit equal to
 * the context means all that is left.
 */
export function leavesNoRoom({ checked, short }: PromptRoom, { context, answer }: RoomLimits): boolean {
  return checked > 0 && short === checked && answer < context;
}

/** A message about a dataset. Null if every row has room. */
export function describeRoom(
  { name, checked, short, least, most }: PromptRoom,
  { context, answer }: RoomLimits,
): string | null {
  if (short === 0) return null;
  const room = least === most ? `${least}` : `${least} to ${most}`;
  const share =
    short === checked ? `all ${checked}` : `${short} of ${checked} (${((100 * short) / checked).toFixed(1)} %)`;
  return `${name}: ${share} checked prompts leave answers ${room} tokens, and rollout.max_response_tokens is ${answer}: longer answers are cut by policy.model_context_size, which is ${context} (episode/cut_by_context counts them)`;
}
