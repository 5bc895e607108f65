/** How much room the context of a policy leaves for answers. */

/** The rows of one dataset that were checked: all, or a sample at equal distances. */
export interface PromptRoom {
  /** The dataset, as the config names it. */
  readonly name: string;
  readonly looked: number;
  /** How many of them leave an answer less room than rollout.max_response_tokens. */
  readonly short: number;
  /** Tokens that the longest and the shortest of those prompts leave. 0 if none is short. */
  readonly least: number;
  readonly most: number;
}

/** The settings that decide it. */
export interface RoomLimits {
  readonly context: number;
  readonly answer: number;
}

/** Whether the answers to all rows of a dataset are cut, though the settings promise them room. An answer as long as the whole context means as much as it leaves. */
export function leavesNoRoom({ looked, short }: PromptRoom, { context, answer }: RoomLimits): boolean {
  return looked > 0 && short === looked && answer < context;
}

/** A message about a dataset for the user. Null if every row has room. */
export function describeRoom(
  { name, looked, short, least, most }: PromptRoom,
  { context, answer }: RoomLimits,
): string | null {
  if (short === 0) return null;
  const room = least === most ? `${least}` : `${least} to ${most}`;
  const share = short === looked ? `all ${looked}` : `${short} of ${looked} (${((100 * short) / looked).toFixed(1)} %)`;
  return `${name}: ${share} prompts looked at leave answers ${room} tokens, and rollout.max_response_tokens is ${answer}: longer answers are cut by policy.model_context_size, which is ${context} (episode/cut_by_context counts them)`;
}
