/** The text of an input field that is bound to a value elsewhere, such as in the address. */
import { useLayoutEffect, useRef, useState } from 'preact/hooks';

const REPORTED_AFTER_MS = 250;

/**
 * The text of a field, and a function to change it. `onValue` gets the text after a short pause in typing. When the value changes for another reason,
 * it replaces the text; getting back the reported value does not count, because the user may have typed on since.
 */
export function useTyped(value: string, onValue: (text: string) => void): [string, (text: string) => void] {
  const [text, setText] = useState(value);
  const reported = useRef(value);
  const report = useRef(onValue);
  report.current = onValue;
  // In a layout effect: after painting, the user may already have begun to type.
  useLayoutEffect(() => {
    if (value === reported.current) return;
    reported.current = value;
    setText(value);
  }, [value]);
  useLayoutEffect(() => {
    if (text === reported.current) return undefined;
    const timer = setTimeout(() => {
      reported.current = text;
      report.current(text);
    }, REPORTED_AFTER_MS);
    return () => clearTimeout(timer);
  }, [text]);
  return [text, setText];
}
