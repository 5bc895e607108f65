/** One episode: its pictures, what was asked and answered, how it was scored, and what the judge said. */
import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import type { WireEpisode, WireJudgement, WireOutcomeKind } from '../wire.js';
import { useData } from './data.js';
import { showNumber, visible } from './format.js';
import { Picture, Status } from './parts.js';
import { address } from './source.js';

const OUTCOMES: Readonly<Record<WireOutcomeKind, string>> = {
  scored: 'scored',
  zero_by_rule: 'zero by rule',
  unscored: 'unscored',
};
/** Longer answers are folded. */
const LONG = 600;

export function Episode({
  id,
  episode,
  judged,
  promptHref,
}: {
  readonly id: string;
  readonly episode: WireEpisode;
  /** Whether a judge was asked about episodes of this run. */
  readonly judged: boolean;
  /** Link to its prompt over iterations; null if that is shown already. */
  readonly promptHref: string | null;
}): JSX.Element {
  const [asked, setAsked] = useState(false);
  const { key, instruction, outcome, score, advantage, reason, finished } = episode;
  const pictures = (['source', 'edited', 'truth'] as const).flatMap((kind) => {
    const name = episode[kind];
    return name === null ? [] : [{ kind, path: address(`/api/picture/${name}`, { run: id }) }];
  });
  return (
    <article class="card episode" tabIndex={-1} aria-label={`episode ${key}`}>
      <p class="row">
        <strong class="score">{showNumber(score)}</strong>
        <span class={`outcome outcome-${outcome}`}>{OUTCOMES[outcome]}</span>
        {advantage !== null && <span title="within its group">advantage {showNumber(advantage)}</span>}
        {!finished && <span class="outcome outcome-zero_by_rule">did not stop</span>}
        <span class="quiet mono key">{visible(key)}</span>
      </p>
      {pictures.length > 0 && (
        <div class="pictures">
          {pictures.map(({ kind, path }) => (
            <Picture key={kind} path={path} label={kind === 'edited' ? 'edit' : kind} />
          ))}
        </div>
      )}
      <p class="instruction">{visible(instruction)}</p>
      {episode.thought !== null && <AnswerText title="thought" text={episode.thought} />}
      {episode.text !== null && <AnswerText title="answer" text={episode.text} />}
      {episode.expected !== null && <AnswerText title="expected" text={episode.expected} />}
      {reason !== null && <p class="quiet">{visible(reason)}</p>}
      <ScoreParts parts={episode.parts} />
      <p class="row">
        {judged && (
          <button type="button" aria-expanded={asked} onClick={() => setAsked(!asked)}>
            the judge's words
          </button>
        )}
        {promptHref !== null && <a href={promptHref}>this prompt over iterations</a>}
      </p>
      {asked && <Judgements id={id} episodeKey={key} />}
    </article>
  );
}

function AnswerText({ title, text }: { readonly title: string; readonly text: string }): JSX.Element {
  const shown = <pre class="words">{visible(text)}</pre>;
  if (text.length <= LONG) {
    return (
      <div>
        <span class="label">{title}</span>
        {shown}
      </div>
    );
  }
  return (
    <details>
      <summary>
        {title} ({text.length} letters)
      </summary>
      {shown}
    </details>
  );
}

/** The parts of each term, under its name. */
function ScoreParts({ parts }: Pick<WireEpisode, 'parts'>): JSX.Element | null {
  const terms = new Map<string, [part: string, value: number | null][]>();
  for (const [name, value] of Object.entries(parts)) {
    const cut = name.indexOf('/');
    const term = cut < 0 ? '' : name.slice(0, cut);
    terms.set(term, [...(terms.get(term) ?? []), [name.slice(cut + 1), value]]);
  }
  if (terms.size === 0) return null;
  return (
    <dl class="parts">
      {[...terms].map(([term, own]) => (
        <div key={term}>
          <dt>{visible(term)}</dt>
          <dd>
            {own.map(([part, value]) => (
              <span key={part}>
                {visible(part.replaceAll('_', ' '))} <b>{showNumber(value)}</b>
              </span>
            ))}
          </dd>
        </div>
      ))}
    </dl>
  );
}

function Judgements({ id, episodeKey }: { readonly id: string; readonly episodeKey: string }): JSX.Element {
  const { data, error, loading } = useData<readonly WireJudgement[]>('/api/judgements', { run: id, key: episodeKey });
  return (
    <div class="judgements">
      <Status error={error} loading={loading} what="Looking for judgements" />
      {data?.length === 0 && <p class="quiet">No judge was asked about this episode.</p>}
      {data?.map(({ question, model, text, problem, scores, attempts, latency_ms }) => (
        <section key={question}>
          <h3>
            {visible(question)}{' '}
            {scores.length > 0 && <span class="quiet">scores {scores.map(showNumber).join(', ')}</span>}
          </h3>
          {problem !== null && <p class="error">{visible(problem)}</p>}
          <pre class="words">{visible(text)}</pre>
          <p class="quiet small">
            {visible(model)}, {latency_ms} ms{attempts > 1 && `, ${attempts} attempts`}
          </p>
        </section>
      ))}
    </div>
  );
}
