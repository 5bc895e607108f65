/** Keyboard shortcuts of the page. They are inactive while somebody types. */
import { useLayoutEffect, useRef } from 'preact/hooks';

export type KeyTable = Readonly<Record<string, () => void>>;

/** Listens while the component is shown, from before it is painted, since a user who sees it may press a key at once. */
export function useKeys(table: KeyTable): void {
  const current = useRef(table);
  current.current = table;
  useLayoutEffect(() => {
    const press = (event: KeyboardEvent): void => {
      if (event.ctrlKey || event.altKey || event.metaKey || isWriting(event.target)) return;
      if (document.querySelector('dialog[open]') !== null) return;
      const act = Object.hasOwn(current.current, event.key) ? current.current[event.key] : undefined;
      if (act === undefined) return;
      event.preventDefault();
      act();
    };
    addEventListener('keydown', press);
    return () => removeEventListener('keydown', press);
  }, []);
}

function isWriting(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && target.matches('input, textarea, select, [contenteditable]');
}

/** The meaning of the keys, for the list that `?` shows. */
export const KEY_HELP: readonly (readonly [keys: string, meaning: string])[] = [
  ['/', 'write a filter'],
  ['j  k', 'the next, the previous run or episode'],
  ['Enter', 'open the run'],
  ['x', 'tick the run, to compare it'],
  ['[  ]', 'the previous, the next iteration or page'],
  ['g', 'all runs'],
  ['e', 'experiments'],
  ['?', 'this list'],
];
