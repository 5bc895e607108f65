/** Names what a reward section asks and how it weighs the answers. */
import { canonicalJson } from '../config/hash.js';
import { countedText, fileDigest } from '../config/texts.js';
import { sha256 } from '../core/image.js';
import { loadPrompts, type PromptSet } from '../rewards/judge/prompts.js';
import { reward as rewardSchema, type RewardSettings } from '../rewards/schema/reward.js';
import { leaves } from '../schema/walk.js';

/** SHA-256 over everything that decides the scores: servers with equal digests give equal scores. */
export function rewardDigest(settings: RewardSettings, prompts: PromptSet = loadPrompts(settings)): string {
  const deciding = leaves(rewardSchema, settings)
    .filter(({ effect, path }) => effect === 'result' && !path.startsWith('prompts.'))
    // The content of a file decides, not its path on this machine.
    .map(({ path, value, mark: { file } }) => [
      path,
      file !== undefined && typeof value === 'string' ? countedText(value, fileDigest(file, value)) : value,
    ]);
  const { sc, pq, ground } = prompts;
  return sha256(canonicalJson({ ...(Object.fromEntries(deciding) as object), prompts: { sc, pq, ground } }));
}
