/** A run's log, which follows new lines while the run is active. */
import type { JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import type { WireLog, WireRunPage } from '../wire.js';
import { visible } from './format.js';
import { changed, go, type Place } from './router.js';
import { listen } from './server_source.js';

/** Maximum number of characters to keep, from the end of the log. */
const MAX_CHARACTERS = 400_000;
/** Within this many pixels of the end, the view follows new lines. */
const NEAR_END_PX = 40;
const RETRY_AFTER_MS = 2_000;

export function LogView({ place, page }: { readonly place: Place; readonly page: WireRunPage }): JSX.Element {
  const { run, attempts } = page;
  const attempt = place.query.get('attempt') ?? '';
  const rank = place.query.get('rank') ?? '';
  const [text, setText] = useState('');
  const [ending, setEnding] = useState<string | null>(null);
  const box = useRef<HTMLPreElement>(null);
  const follows = useRef(true);

  useEffect(() => {
    setText('');
    setEnding(null);
    follows.current = true;
    const stop = new AbortController();
    const take = (event: WireLog): void => {
      if (event.kind === 'text') setText((before) => (before + event.text).slice(-MAX_CHARACTERS));
      else setEnding(event.reason ?? 'The run has ended. This is its complete log.');
    };
    const query = { run: run.id, ...(attempt === '' ? {} : { attempt }), ...(rank === '' ? {} : { rank }) };
    const follow = async (): Promise<void> => {
      let ended = false;
      const watch = (event: WireLog): void => {
        ended ||= event.kind === 'end';
        take(event);
      };
      await listen<WireLog>('/api/log', query, watch, stop.signal, () => setText(''));
      if (!ended) throw new Error('Lost the connection to the log');
    };
    const again = (): void => {
      follow().catch((error: unknown) => {
        if (stop.signal.aborted) return;
        setEnding(`${error instanceof Error ? error.message : String(error)}; reconnecting.`);
        setTimeout(() => {
          if (!stop.signal.aborted) again();
        }, RETRY_AFTER_MS);
      });
    };
    again();
    return () => stop.abort();
    // A restarted run continues its log.
  }, [run.id, attempt, rank, attempts.length]);

  useEffect(() => {
    const element = box.current;
    if (element !== null && follows.current) element.scrollTop = element.scrollHeight;
  }, [text]);

  return (
    <>
      <div class="filter">
        <label class="short">
          <span class="label">attempt</span>
          <select
            value={attempt}
            onChange={(event) => go(changed(place, { attempt: event.currentTarget.value || null }))}
          >
            <option value="">latest</option>
            {attempts.map((one) => (
              <option key={one.attempt} value={one.attempt}>
                {one.attempt}
              </option>
            ))}
          </select>
        </label>
        <label class="short">
          <span class="label">process</span>
          <select value={rank} onChange={(event) => go(changed(place, { rank: event.currentTarget.value || null }))}>
            <option value="">readable log</option>
            {Array.from({ length: page.processes }, (_, one) => (
              <option key={one} value={one}>
                rank {one}, JSON lines
              </option>
            ))}
          </select>
        </label>
      </div>
      <pre
        class="log card"
        ref={box}
        tabIndex={0}
        aria-label="Log"
        onScroll={({ currentTarget: { scrollTop, scrollHeight, clientHeight } }) => {
          follows.current = scrollHeight - scrollTop - clientHeight < NEAR_END_PX;
        }}
      >
        {visible(text)}
      </pre>
      {ending !== null && <p class="quiet">{visible(ending)}</p>}
    </>
  );
}
