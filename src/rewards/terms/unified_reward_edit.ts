/**
 * UnifiedReward-Edit (Wang et al., "Unified Reward Model for Multimodal Understanding and Generation", 2025): its two pointwise questions,
 * on EditScore's scale and combined as there. Its client decodes greedily (`vllm_qwen/vllm_request.py`).
 */
import { viescoreJudge } from './judged/prompted.js';

export const unifiedRewardEdit = viescoreJudge({
  name: 'unified_reward_edit',
  description:
    'How well the edit follows the instruction and how good it looks, by a UnifiedReward-Edit judge: two questions from 0 to 25, scaled to 0 to 10.',
  origin: { script: 'unified_reward_edit', repository: 'CodeGoat24/UnifiedReward' },
  manner: { temperature: 0, maxCompletionTokens: 4096 },
  top: 25,
});
