/**
 * EditScore (Luo et al., "EditScore: Unlocking Online RL for Image Editing via High-Fidelity Reward Modeling", 2025): a judge for edits on
 * VIEScore's two questions, from 0 to 25. Sampling, order and arithmetic are those of its `editscore/__init__.py` with the vLLM backend.
 */
import { viescoreJudge } from './judged/prompted.js';

export const editscore = viescoreJudge({
  name: 'editscore',
  description:
    'How well the edit follows the instruction and how good it looks, by an EditScore judge: two questions from 0 to 25, scaled to 0 to 10.',
  origin: { script: 'editscore', repository: 'VectorSpaceLab/EditScore' },
  manner: { temperature: 0.7, topP: 0.9, topK: 20, maxCompletionTokens: 512 },
  top: 25,
});
