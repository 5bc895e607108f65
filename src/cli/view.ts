/** What shows a person that a verb trains. */
import { PlainView, viewOn, type View } from '../launch/live/view.js';

/** With `--json` standard output holds the document alone; what happens is still said, beside it. */
export function viewFor(json: boolean): View {
  return json ? new PlainView((line) => void process.stderr.write(line)) : viewOn(process.stdout);
}
