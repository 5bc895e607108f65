/** Edit-R1's judge (Li et al., "Uniworld-V2", 2025, arXiv 2510.16888): the expected grade, in the words of its `reward_server`. */
import { fillTemplate } from '../judge/template.js';
import { expectedDigitTerm } from './judged/expected_digit.js';
import { modelField, promptField, promptOf, type Origin } from './judged/prompted.js';
import { termKind } from './term.js';

const name = 'edit_r1';
const origin: Origin = { script: name, repository: 'PKU-YuanGroup/Edit-R1' };
const placeholders = { images: ['source', 'edited'], words: ['instruction'] } as const;

export const editR1 = termKind({
  name,
  description:
    "The expected grade of an edit from 0 to 5 with Edit-R1's question, from the probabilities of the first token, divided by 5. The server has to support logprobs, as vLLM does.",
  fields: { prompt: promptField('of the question', placeholders, origin), model: modelField },
  reads: 'image',
  needs: { judge: true, truth: false, source: true },
  asksModel: true,
  async create({ prompt, model }, services) {
    const template = promptOf(prompt, placeholders, `${name}.prompt`, origin);
    return expectedDigitTerm(name, services.judge(model ?? undefined), ({ instruction, source, edited }) =>
      fillTemplate(template, { instruction }, { source, edited }),
    );
  },
});
