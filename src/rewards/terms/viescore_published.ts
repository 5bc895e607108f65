/**
 * VIEScore in its published words (Ku et al., "VIEScore: Towards Explainable Metrics for Conditional Image Synthesis Evaluation", 2024). Its
 * client sends no temperature, which is 1 at OpenAI, and 1,400 tokens.
 */
import { viescoreJudge } from './judged/prompted.js';

export const viescorePublished = viescoreJudge({
  name: 'viescore_published',
  description:
    'How well the edit follows the instruction and how good it looks, with the published questions of VIEScore, from 0 to 10.',
  origin: { script: 'viescore_published', repository: 'TIGER-AI-Lab/VIEScore' },
  manner: { temperature: 1, maxCompletionTokens: 1400 },
  top: 10,
});
