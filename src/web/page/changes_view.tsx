/** Changes of held-out answers: the number, how many prompts improved, and examples with their images. */
import type { JSX } from 'preact';
import type { WireChanges, WireShown } from '../wire.js';
import { visible } from './format.js';
import { ImageFigure } from './parts.js';

interface Props {
  readonly changes: WireChanges;
  /** The scale of the numbers, such as `viescore, 0 to 10`. */
  readonly scale: string | null;
  /** The address of an image. */
  readonly address: (at: string) => string;
}

export function ChangesView({ changes, scale, address }: Props): JSX.Element {
  const { before, after, change, better, same, worse, examples } = changes;
  const digits = Math.max(before, after) > 1 ? 2 : 3;
  const [label, range] = (scale ?? 'reward').split(', ');
  const most = /to (\S+)$/.exec(range ?? '')?.[1];
  const error = change.stderr === null ? '' : ` ± ${change.stderr.toFixed(digits)}`;
  return (
    <section class="changes" aria-label="Change of held-out answers">
      <div class="card headline">
        <div>
          <p class="big">
            <strong>{`${before.toFixed(digits)} → ${after.toFixed(digits)}`}</strong>{' '}
            <span class="quiet">{visible(`${most === undefined ? '' : `of ${most}, `}held-out ${label}`)}</span>
          </p>
          <p class="quiet">{`${signedFixed(change.mean, digits)}${error}, paired over ${change.n} prompts`}</p>
        </div>
        <div class="shares" role="img" aria-label={`${better} better, ${same} the same, ${worse} worse`}>
          <Share kind="good" count={better} name="better" />
          <Share kind="idle" count={same} name="the same" />
          <Share kind="bad" count={worse} name="worse" />
        </div>
      </div>
      {examples.length > 0 && (
        <>
          <p class="quiet small">
            Examples: better prompts at even ranks of their gain, the median of the worse ones, and the first that still
            fails.
          </p>
          <ul class="examples">
            {examples.map(({ prompt, gain, images }) => (
              <li key={prompt} class="card">
                <p class="asked">
                  <strong>{visible(prompt)}</strong>{' '}
                  <span class={`gain gain-${gain > 0 ? 'good' : gain < 0 ? 'bad' : 'idle'}`}>
                    {gain === 0 ? '±0' : signedFixed(gain, 1)}
                  </span>
                </p>
                <div class="strip">
                  {images.map((image) => (
                    <Shown key={image.label} image={image} prompt={prompt} address={address} />
                  ))}
                </div>
              </li>
            ))}
          </ul>
        </>
      )}
    </section>
  );
}

function Share({ kind, count, name }: { readonly kind: string; readonly count: number; readonly name: string }) {
  if (count === 0) return null;
  return (
    <span class={`share share-${kind}`} style={{ flexGrow: count }}>
      {`${count} ${name}`}
    </span>
  );
}

function Shown({
  image: { label, score, at },
  prompt,
  address,
}: { readonly image: WireShown; readonly prompt: string } & Pick<Props, 'address'>): JSX.Element {
  const text = score === null ? label : `${label} ${score.toFixed(1)}`;
  if (at === null) {
    return (
      <figure class="image">
        <span class="image-missing">no image</span>
        <figcaption>{text}</figcaption>
      </figure>
    );
  }
  return <ImageFigure path={address(at)} label={text} alt={`${label}: ${prompt}`} />;
}

function signedFixed(value: number, digits: number): string {
  return `${value < 0 ? '−' : '+'}${Math.abs(value).toFixed(digits)}`;
}
