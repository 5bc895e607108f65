/** One prompt, iteration by iteration. */
import type { JSX } from 'preact';
import type { WirePrompt } from '../wire.js';
import { useData } from './data.js';
import { Episode } from './episode.js';
import { showNumber, visible } from './format.js';
import { useKeys } from './keys.js';
import { Status } from './parts.js';
import { changed, go, type Place } from './router.js';

type Step = WirePrompt['iterations'][number];

export function PromptView({ place, id }: { readonly place: Place; readonly id: string }): JSX.Element {
  const { query } = place;
  const [sample, instruction] = [query.get('sample') ?? '', query.get('instruction') ?? ''];
  const { data, error, loading } = useData<WirePrompt>('/api/prompt', { run: id, sample, instruction }, [id]);
  const steps = data?.iterations ?? [];
  const named = steps.findIndex((step) => nameOf(step) === query.get('step'));
  const at = named >= 0 ? named : steps.length - 1;
  const current = steps[at];
  const step = (to: number): void => {
    const next = steps[Math.min(Math.max(0, to), steps.length - 1)];
    if (next !== undefined) go(changed(place, { step: nameOf(next) }), 'replace');
  };
  useKeys({ '[': () => step(at - 1), ']': () => step(at + 1) });
  return (
    <>
      <p>
        <a href={changed(place, { sample: null, instruction: null, step: null })}>‹ all episodes of an iteration</a>
      </p>
      <h2 class="instruction">{visible(instruction)}</h2>
      <p class="quiet mono">{visible(sample)}</p>
      <Status error={error} loading={loading && data === null} what="Looking through all iterations" />
      {data !== null && steps.length === 0 && <p>No recorded episode answers this prompt.</p>}
      <div class="steps" role="group" aria-label="Iterations of this prompt">
        {steps.map((one, index) => (
          <button
            key={nameOf(one)}
            type="button"
            aria-pressed={index === at}
            class={index === at ? 'primary' : undefined}
            onClick={() => step(index)}
          >
            {one.held_out ? 'held-out ' : ''}
            {one.iteration}
            <span class="step-score">{showNumber(meanScore(one))}</span>
          </button>
        ))}
      </div>
      <div class="episodes">
        {current?.episodes.map((episode) => (
          <Episode key={episode.key} id={id} episode={episode} judged={data?.judged === true} promptHref={null} />
        ))}
      </div>
    </>
  );
}

function nameOf({ iteration, held_out }: Step): string {
  return `${held_out ? 'v' : ''}${iteration}`;
}

function meanScore({ episodes }: Step): number | null {
  const scores = episodes.flatMap(({ score }) => score ?? []);
  return scores.length === 0 ? null : scores.reduce((sum, score) => sum + score, 0) / scores.length;
}
