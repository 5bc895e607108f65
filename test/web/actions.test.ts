import { execFileSync } from 'node:child_process';
import { expect, it } from 'vitest';
import { sweepActionsOf } from '../../src/web/actions.js';

it('shows a command that a shell reads as it is called: of names with quotes and spaces, too', () => {
  for (const name of ["it's here", 'plain', '$(id)', "''"]) {
    const { command } = sweepActionsOf({ name, folder: "/some/o'ther place", swept: true })[0];
    const words = execFileSync('sh', ['-c', `editrl() { printf '%s\\n' "$@"; }\n${command}`], { encoding: 'utf8' });
    expect(words.split('\n').slice(0, 4)).toEqual(['stop', name, '--exp-dir', "/some/o'ther place"]);
  }
});
