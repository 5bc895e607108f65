/** EARL's combination of VIEScore's perceptual quality with the ground score: sqrt(PQ * ground score), from 0 to 10. */
import { judgedTerm } from './judged_term.js';
import { termKind } from './term.js';
import { groundQuestion } from './ground_score.js';
import { qualityQuestion } from './viescore.js';

export const qualityAndGround = termKind({
  name: 'sqrt(viescore_pqxground_score)',
  description: "The geometric mean of VIEScore's perceptual quality and the ground score, by the judge, from 0 to 10.",
  fields: {},
  most: 10,
  reads: 'image',
  needs: { judge: true, truth: true, source: true },
  asks: () => [qualityQuestion, groundQuestion].map(({ name }) => name),
  create: async (_settings, services) =>
    judgedTerm(
      {
        name: 'sqrt(viescore_pqxground_score)',
        questions: [qualityQuestion, groundQuestion],
        value: (parts) => Math.sqrt(parts['viescore/perceptual_quality'] * parts['ground_score/overall']),
        valuePart: null,
      },
      services,
    ),
});
