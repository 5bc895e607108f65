/** The page: its header, the view from the address, and connection errors. */
import { render, type JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { visible } from './format.js';
import { KEY_HELP, SourceContext, useKeys } from './hooks.js';
import { Dialog } from './parts.js';
import { hashOf, usePlace, type Place } from './router.js';
import { CompareView } from './compare_view.js';
import { ExperimentsView, MatrixView } from './matrix_view.js';
import { RunView } from './run_view.js';
import { RunsView } from './runs_view.js';
import { feed, serverSource, storeToken, storeTokenOfAddress, type Connection } from './server_source.js';

const VIEWS: Readonly<Record<string, (props: { readonly place: Place }) => JSX.Element>> = {
  runs: RunsView,
  run: RunView,
  compare: CompareView,
  experiments: ExperimentsView,
  experiment: MatrixView,
};

function Page(): JSX.Element {
  const place = usePlace();
  const [connection, setConnection] = useState<Connection>('open');
  const [help, setHelp] = useState(false);
  useEffect(() => {
    const off = feed.onConnection(setConnection);
    feed.start();
    return off;
  }, []);
  useKeys({
    '?': () => setHelp(true),
  });
  const View = Object.hasOwn(VIEWS, place.view) ? VIEWS[place.view] : undefined;
  const current = (view: string): 'page' | undefined =>
    place.view === view || `${place.view}s` === view || (view === 'runs' && place.view === 'compare')
      ? 'page'
      : undefined;
  return (
    <>
      <header class="head">
        <a class="brand" href={hashOf('runs')}>
          editrl
        </a>
        <nav aria-label="Views">
          <a href={hashOf('runs')} aria-current={current('runs')}>
            runs
          </a>
          <a href={hashOf('experiments')} aria-current={current('experiments')}>
            experiments
          </a>
        </nav>
        <button type="button" class="help" onClick={() => setHelp(true)} aria-label="keyboard shortcuts">
          ?
        </button>
      </header>
      {connection === 'lost' && (
        <p class="banner" role="alert">
          The dashboard server does not respond. Reconnecting. The page may be out of date.
        </p>
      )}
      {connection === 'refused' ? (
        <TokenForm />
      ) : View === undefined ? (
        <NotFound />
      ) : (
        <View place={place} key={`${place.view} ${place.id}`} />
      )}
      <Notices />
      {help && (
        <Dialog title="Keyboard shortcuts" onClose={() => setHelp(false)}>
          <dl class="keys">
            {KEY_HELP.map(([keys, meaning]) => (
              <div key={keys}>
                <dt>
                  <kbd>{keys}</kbd>
                </dt>
                <dd>{meaning}</dd>
              </div>
            ))}
          </dl>
          <form method="dialog">
            <button>close</button>
          </form>
        </Dialog>
      )}
    </>
  );
}

function TokenForm(): JSX.Element {
  const [token, setToken] = useState('');
  const [tried, setTried] = useState(false);
  return (
    <main class="narrow">
      <h1>Enter the dashboard token</h1>
      <p>
        Open the address that <code>editrl dashboard</code> printed, or enter its token here. Only this browser tab
        keeps the token.
      </p>
      {tried && (
        <p class="error" role="alert">
          The token is wrong. A restarted dashboard has a new token.
        </p>
      )}
      <form
        class="filter"
        onSubmit={(event) => {
          event.preventDefault();
          storeToken(token.trim());
          setTried(true);
          feed.restart();
        }}
      >
        <label class="grow">
          <span class="label">token</span>
          <input
            type="password"
            value={token}
            autocomplete="off"
            onInput={(event) => setToken(event.currentTarget.value)}
          />
        </label>
        <button type="submit">continue</button>
      </form>
    </main>
  );
}

function NotFound(): JSX.Element {
  return (
    <main class="narrow">
      <h1>Page not found</h1>
      <p>
        <a href={hashOf('runs')}>All runs</a>
      </p>
    </main>
  );
}

/** Results of requested actions, until the user dismisses them. */
function Notices(): JSX.Element {
  const [notices, setNotices] = useState<readonly { id: number; level: 'info' | 'error'; text: string }[]>([]);
  useEffect(() => {
    let count = 0;
    return feed.onNotice(({ level, text }) => {
      const id = count++;
      setNotices((before) => [...before.slice(-4), { id, level, text }]);
      if (level === 'info') setTimeout(() => setNotices((before) => before.filter((one) => one.id !== id)), 8_000);
    });
  }, []);
  return (
    <div class="notices" role="status">
      {notices.map(({ id, level, text }) => (
        <div key={id} class={`notice notice-${level}`}>
          <pre>{visible(text)}</pre>
          <button
            type="button"
            aria-label="dismiss"
            onClick={() => setNotices((before) => before.filter((one) => one.id !== id))}
          >
            ×
          </button>
        </div>
      ))}
    </div>
  );
}

storeTokenOfAddress();
const holder = document.getElementById('page');
if (holder !== null) {
  render(
    <SourceContext.Provider value={serverSource}>
      <Page />
    </SourceContext.Provider>,
    holder,
  );
}
