/** Buttons for the actions of a run or a sweep; each asks for confirmation and shows the equivalent command. */
import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import type { ActionName, WireAction } from '../wire.js';
import { visible } from './format.js';
import { Dialog } from './parts.js';
import { postJson } from './session.js';

interface ActionText {
  readonly title: string;
  readonly why: string;
  /** Whether it destroys something, which its confirmation shows. */
  readonly danger?: true;
  /** Whether it is what most people want. */
  readonly primary?: true;
}

/** Names of actions and descriptions of what they do. */
export type ActionTexts = Readonly<Partial<Record<ActionName, ActionText>>>;

export function Actions({
  actions,
  words,
  name,
  target,
}: {
  readonly actions: readonly WireAction[];
  readonly words: ActionTexts;
  /** Name of what is acted on. */
  readonly name: string;
  readonly target: { readonly run: string } | { readonly experiment: string };
}): JSX.Element | null {
  const [asked, setAsked] = useState<WireAction | null>(null);
  const [error, setError] = useState<string | null>(null);
  const [sent, setSent] = useState<string | null>(null);
  if (actions.length === 0) return null;
  const wordsOf = ({ action }: WireAction): ActionText => words[action] ?? { title: action, why: '' };
  const send = (action: WireAction): void => {
    setAsked(null);
    setError(null);
    postJson('/api/act', { ...target, action: action.action }).then(
      () => setSent(wordsOf(action).title),
      (failed: unknown) => setError(failed instanceof Error ? failed.message : String(failed)),
    );
  };
  return (
    <div class="row actions">
      {actions.map((action) => {
        const { title, primary } = wordsOf(action);
        return (
          <button
            key={action.action}
            type="button"
            class={primary === true ? 'primary' : undefined}
            onClick={() => setAsked(action)}
          >
            {title}
          </button>
        );
      })}
      <span role="status" class="quiet">
        {sent === null ? '' : `${sent} was asked for; the state follows.`}
      </span>
      {error !== null && (
        <p class="error" role="alert">
          {visible(error)}
        </p>
      )}
      {asked !== null && (
        <Dialog title={`${wordsOf(asked).title} ${name}?`} onClose={() => setAsked(null)}>
          <p>{wordsOf(asked).why}</p>
          <p class="quiet">The same as:</p>
          <pre class="command">{visible(asked.command)}</pre>
          <form method="dialog">
            <button>cancel</button>
            <button
              type="button"
              class={wordsOf(asked).danger === true ? 'danger' : 'primary'}
              onClick={() => send(asked)}
            >
              {wordsOf(asked).title}
            </button>
          </form>
        </Dialog>
      )}
    </div>
  );
}
