/** What somebody types into a field, which stands for a value elsewhere, such as in the address. */
import { useLayoutEffect, useRef, useState } from 'preact/hooks';

const TOLD_AFTER_MS = 250;

/**
 * The text of a field, and how to change it. `onValue` is told of it when nobody has typed on for a moment; a value that changes otherwise replaces
 * the text. A value that comes back as it was told is no such change: somebody may have typed on since.
 */
export function useTyped(value: string, onValue: (text: string) => void): [string, (text: string) => void] {
  const [text, setText] = useState(value);
  const told = useRef(value);
  const tell = useRef(onValue);
  tell.current = onValue;
  // While it is rendered: after it was painted somebody may have begun to type.
  useLayoutEffect(() => {
    if (value === told.current) return;
    told.current = value;
    setText(value);
  }, [value]);
  useLayoutEffect(() => {
    if (text === told.current) return undefined;
    const timer = setTimeout(() => {
      told.current = text;
      tell.current(text);
    }, TOLD_AFTER_MS);
    return () => clearTimeout(timer);
  }, [text]);
  return [text, setText];
}
