/** The expected grade of an edit in editrl's own words: one token, no reasoning, and finer grades than digits. */
import { digitPrompt, withInstruction } from '../judge/prompts.js';
import { expectedDigitTerm } from './judged/expected_digit.js';
import { modelField } from './judged/prompted.js';
import { termKind } from './term.js';

export const logitExpectation = termKind({
  name: 'logit_expectation',
  description:
    "The judge's expected grade of an edit from 0 to 5, from the probabilities of its first token, divided by 5. The server has to support logprobs, as vLLM does.",
  fields: { model: modelField },
  reads: 'image',
  needs: { judge: true, truth: false, source: true },
  create: ({ model }, services) =>
    expectedDigitTerm('logit_expectation', services.judge(model ?? undefined), ({ instruction, source, edited }) => [
      { role: 'user', parts: [withInstruction(digitPrompt, instruction), source, edited] },
    ]),
});
